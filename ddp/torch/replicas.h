// DataParallel's replicas: their threads, their communicators, and what moves between them.
#pragma once

#include <ATen/Parallel.h>

#include <memory>
#include <vector>

#include "ddp/torch/module_state.h"
#include "ddp/torch/workers.h"
#include "unisono/torch/data_parallel.h"

namespace unisono::ddp {

class Replicas {
 public:
  explicit Replicas(std::vector<std::shared_ptr<torch::nn::Module>> modules);
  ~Replicas();
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  size_t count() const { return modules_.size(); }
  // Parameters that want a gradient, of one replica; all replicas have the same.
  std::vector<torch::Tensor> trainable(size_t replica) const;
  // Modes, and what wants a gradient, become those of the module itself. Before a run().
  void follow_module();
  void run(const std::function<void(size_t)>& task) { workers_.run(task); }
  // Of thread `replica`, all replicas at once: parameters and buffers become the module's.
  void take_values(size_t replica);
  // Of thread `replica`, all replicas at once. tensors: each replica's, of the same shapes and
  // types; replica 0 gets the sums.
  void sum_to_module(size_t replica, std::vector<torch::Tensor>& tensors);

 private:
  const std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<ModuleState> states_;
  std::vector<uniComm_t> comms_;
  Workers workers_;
};

}  // namespace unisono::ddp
