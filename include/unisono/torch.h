// Unisono for libtorch: everything of include/unisono/torch/. docs/torch.md has the guide. The
// library is libunisono_torch, which is built where a PyTorch is found.
//
// Conventions of these headers, other than unisono.h's: they are C++, in namespace unisono::ddp,
// and fail as torch does, by throwing c10::Error with our words. CPU tensors only in this version.
#ifndef UNISONO_TORCH_H_
#define UNISONO_TORCH_H_

#include "unisono/torch/checkpoint.h"
#include "unisono/torch/data_parallel.h"
#include "unisono/torch/distributed_data_parallel.h"

#endif  // UNISONO_TORCH_H_
