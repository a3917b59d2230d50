#pragma once

#include <cstdint>

namespace unisono::ddp {

// order[0..count) = torch.randperm(count) of a CPU generator seeded with `seed`. Any thread.
void torch_permutation(uint32_t* order, uint32_t count, uint64_t seed);

}  // namespace unisono::ddp
