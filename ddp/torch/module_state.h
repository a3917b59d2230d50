// The tensors of a module, and what makes those of all ranks alike.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "unisono/unisono.h"

namespace unisono::ddp {

struct NamedTensor {
  std::string name;
  torch::Tensor tensor;  // Shares memory with the module's.
};

// Each tensor once, however many names it has (tied weights), under its first; those that are not
// defined or have no elements are left out. Throws for tensors that are not dense and on the CPU.
struct ModuleState {
  std::vector<NamedTensor> parameters;  // Frozen ones too.
  std::vector<NamedTensor> buffers;

  std::vector<torch::Tensor> buffer_tensors() const;
  std::vector<torch::Tensor> tensors() const;  // Parameters, then buffers.
};
ModuleState module_state(const torch::nn::Module& module);

// Collective. Compares names, types, shapes, strides and whether a gradient is wanted with rank
// 0's; throws on every rank, naming the first difference, if there is one.
void verify_alike(const ModuleState& state, uniComm_t comm);

// Collective. The values of every rank become root's. Shapes, strides and types are taken for
// equal.
void broadcast_tensors(const std::vector<torch::Tensor>& tensors, int root, uniComm_t comm);

// Its elements fill a block of memory, in whatever order of dimensions.
bool is_block(const torch::Tensor& tensor);

}  // namespace unisono::ddp
