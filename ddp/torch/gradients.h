// The gradients of a model's parameters, in the reducer's buckets and as autograd sees them.
#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include "ddp/torch/module_state.h"
#include "unisono/torch/distributed_data_parallel.h"

namespace unisono::ddp {

// With gradient_as_bucket_view a parameter's gradient becomes a view of its bucket. Otherwise it
// stays autograd's own tensor: copied to the bucket when it is final, and overwritten with the
// average. Functions of one parameter may be called for different parameters from different
// threads.
class Gradients {
 public:
  // Collective. Throws if a type has no gradients that can be averaged.
  Gradients(uniComm_t comm, std::vector<NamedTensor> parameters,
            const DistributedDataParallelOptions& options);
  ~Gradients();
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  int size() const { return static_cast<int>(parameters_.size()); }
  uniReducer_t reducer() const { return reducer_.get(); }
  torch::Tensor& parameter(int index) { return parameters_[static_cast<size_t>(index)].tensor; }

  // Throws if the parameter has got another type or shape since construction.
  void require_unchanged(int index) const;
  // The gradient is final: to the bucket with it. Returns what uniReducerMarkReady does, or
  // uniInvalidUsage, with words, for a gradient that is not dense.
  uniResult_t deliver(int index);
  // Instead of a gradient, zeros; the parameter's own stays as it is.
  uniResult_t deliver_zeros(int index);
  // After uniReducerFinish, for each parameter: the bucket's contents, times factor, become its
  // gradient.
  void receive(int index, double factor);
  // After uniReducerFinish: buckets may have moved.
  void find_views();
  // Gradients that are views of buckets become copies.
  void leave_views();
  // The peers shall not wait for us.
  void abort() { (void)uniCommAbort(comm_); }

 private:
  bool is_view(int index);
  torch::Tensor make_view(int index);

  const uniComm_t comm_;
  std::vector<NamedTensor> parameters_;
  std::vector<torch::Tensor> views_;
  const bool as_views_;
  struct Destroy {
    // Nobody to tell a failure to; the memory is freed in any case.
    void operator()(uniReducer_t reducer) const { (void)uniReducerDestroy(reducer); }
  };
  std::unique_ptr<std::remove_pointer_t<uniReducer_t>, Destroy> reducer_;
};

}  // namespace unisono::ddp
