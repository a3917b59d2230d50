// DistributedDataParallel for a torch::nn::Module: one process a rank, each with the whole model
// and its own part of the batch; gradients are averaged over ranks while backward still runs. The
// method, the options and their defaults are those of torch.nn.parallel.DistributedDataParallel.
//
//   unisono::ddp::DistributedDataParallel ddp(model, comm);  // a ModuleHolder or a shared_ptr
//   auto loss = criterion(ddp.forward(input), target);
//   loss.backward();   // returns once every gradient is the average
//   optimizer.step();  // made of model->parameters(), as ever
//
// Threads: one object, one thread at a time; gradients may arrive on any thread of autograd's.
// Blocking: construction, forward (buffers), backward and the end of a Join wait for the other
// ranks, at most as long as the communicator's deadline. Failure: c10::Error, on every rank.
#ifndef UNISONO_TORCH_DISTRIBUTED_DATA_PARALLEL_H_
#define UNISONO_TORCH_DISTRIBUTED_DATA_PARALLEL_H_

#include <torch/nn/module.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "unisono/ddp.h"
#include "unisono/torch/tensors.h"

namespace unisono::ddp {

// Every rank gives the same.
struct DistributedDataParallelOptions {
  size_t bucket_bytes = size_t{25} << 20;
  size_t first_bucket_bytes = size_t{1} << 20;
  // Every forward that follows a synchronised one first makes the buffers (running means) rank 0's.
  bool broadcast_buffers = true;
  // A parameter may take part on some ranks only. Costs a walk of the graph at each forward and a
  // small collective at each backward. One that no rank used keeps its gradient as it was.
  bool find_unused_parameters = false;
  // The same parameters take part in every iteration: finds the unused ones once.
  bool static_graph = false;
  // Gradients live in the buckets that are sent: no copies, one gradient's memory less. They are
  // views: they may not be kept beyond the next backward, nor be used after this object is gone
  // (the parameters' own then are copies).
  bool gradient_as_bucket_view = false;
  // What replaces the averaging of a bucket: uniHookFloat16Compress, one's own.
  uniBucketHook_t hook = nullptr;
  void* hook_arg = nullptr;
};

struct JoinOptions {
  // Gradients are divided by the number of all ranks, or of those that still have input (not with a
  // hook, which divides as it likes).
  bool divide_by_initial_world_size = true;
  // Every rank fails once one is out of input, instead of going on without it.
  bool throw_on_early_termination = false;
};

// What does not depend on the module's type. Use DistributedDataParallel.
class UNI_API DistributedDataParallelCore {
 public:
  // Collective. comm is borrowed until destruction, and during backward it is ours alone. Compares
  // names, types, shapes, strides of parameters and buffers with rank 0's, then takes rank 0's
  // values.
  DistributedDataParallelCore(std::shared_ptr<torch::nn::Module> module, uniComm_t comm,
                              const DistributedDataParallelOptions& options);
  ~DistributedDataParallelCore();  // Not collective.
  DistributedDataParallelCore(const DistributedDataParallelCore&) = delete;
  DistributedDataParallelCore& operator=(const DistributedDataParallelCore&) = delete;

  void before_forward();
  // outputs are looked at only if wants_outputs().
  void after_forward(const std::vector<torch::Tensor>& outputs);
  bool wants_outputs() const;

  // Returns what it was.
  bool set_synchronize(bool synchronize);
  void begin_join(const JoinOptions& options);
  void finish_join();
  void abandon_join();

  void set_hook(uniBucketHook_t hook, void* arg);
  // Of the last synchronised iteration.
  uniReducerStats_t stats() const;
  // For what else ddp.h has to ask. Not to be destroyed, nor to be marked.
  uniReducer_t reducer() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// While it lives, forward and the backward of what that forward gave only accumulate gradients
// here; the next synchronised iteration reduces the sum. Every rank the same.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(DistributedDataParallelCore& core)
      : core_(core), before_(core.set_synchronize(false)) {}
  ~NoSync() { core_.set_synchronize(before_); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  DistributedDataParallelCore& core_;
  const bool before_;
};

// Around the loop over an epoch whose length differs between ranks. A rank that leaves it early
// goes on taking part, with zeros, until all have left; then parameters and buffers are those of
// the rank that was last (the highest of them).
class UNI_API Join {
 public:
  Join(DistributedDataParallelCore& core, const JoinOptions& options);
  // finish(), unless it has been called. When an exception ends the scope, the communicator is
  // aborted instead, so that the others fail rather than wait.
  ~Join() noexcept(false);
  void finish();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

 private:
  DistributedDataParallelCore& core_;
  const int exceptions_;
  bool finished_ = false;
};

// ModuleType: a ModuleHolder (made by TORCH_MODULE) or a shared_ptr of a module with a forward.
template <typename ModuleType>
class DistributedDataParallel {
 public:
  explicit DistributedDataParallel(ModuleType module, uniComm_t comm,
                                   const DistributedDataParallelOptions& options = {})
      : module_(std::move(module)), core_(as_module(module_), comm, options) {}

  // As module()->forward. In evaluation on some ranks only, call that one: with buffers this one is
  // collective.
  template <typename... Args>
  auto forward(Args&&... args) {
    core_.before_forward();
    auto output = module_->forward(std::forward<Args>(args)...);
    std::vector<torch::Tensor> tensors;
    if (core_.wants_outputs()) collect_tensors(output, tensors);
    core_.after_forward(tensors);
    return output;
  }
  template <typename... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  ModuleType& module() { return module_; }
  ModuleType& operator->() { return module_; }

  [[nodiscard]] NoSync no_sync() { return NoSync(core_); }
  [[nodiscard]] Join join(const JoinOptions& options = {}) { return Join(core_, options); }

  DistributedDataParallelCore& core() { return core_; }
  void set_hook(uniBucketHook_t hook, void* arg) { core_.set_hook(hook, arg); }
  uniReducerStats_t stats() const { return core_.stats(); }

 private:
  ModuleType module_;
  DistributedDataParallelCore core_;
};

}  // namespace unisono::ddp

#endif  // UNISONO_TORCH_DISTRIBUTED_DATA_PARALLEL_H_
