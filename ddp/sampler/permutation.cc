// torch.randperm on the CPU. PyTorch's generator is the Mersenne twister of 32 bits (Matsumoto and
// Nishimura 1998), seeded with the low 32 bits of the seed: std::mt19937 exactly. Short lists are
// shuffled from the front: step i swaps entry i with one of the count - i that are left, chosen by
// one draw modulo their number. From kLongList on, where 32 bits would be felt as a bias, PyTorch
// shuffles inside out (entry i is put at a place among the first i + 1, what lay there moves to i),
// each place from 64 bits: two draws, the high half first.
#include "ddp/sampler/permutation.h"

#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace unisono::ddp {
namespace {

constexpr uint32_t kLongList = std::numeric_limits<uint32_t>::max() / 20;

void shuffle_from_the_front(uint32_t* order, uint32_t count, std::mt19937& draw) {
  std::iota(order, order + count, 0U);
  for (uint32_t i = 0; i + 1 < count; i++) {
    const auto skip = static_cast<uint32_t>(draw() % (count - i));
    std::swap(order[i], order[i + skip]);
  }
}

void shuffle_inside_out(uint32_t* order, uint32_t count, std::mt19937& draw) {
  for (uint32_t i = 0; i < count; i++) {
    const uint64_t high = draw();
    const uint64_t low = draw();
    const uint64_t place = (high << 32 | low) % (uint64_t{i} + 1);
    order[i] = i;
    order[i] = order[place];
    order[place] = i;
  }
}

}  // namespace

void torch_permutation(uint32_t* order, uint32_t count, uint64_t seed) {
  std::mt19937 draw(static_cast<uint32_t>(seed));
  if (count < kLongList) {
    shuffle_from_the_front(order, count, draw);
  } else {
    shuffle_inside_out(order, count, draw);
  }
}

}  // namespace unisono::ddp
