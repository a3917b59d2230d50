// Geometry: where a plan's chunks lie in a call's buffers, round by round (PLAN_MACHINE rule 6).
// Pure arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

#include "algorithms/plan.h"

namespace unisono {

struct Geometry {
  BlockRule rule = BlockRule::kWhole;
  uint64_t count = 0;           // of the call
  uint64_t share = 0;           // kSplit: elements from one block's beginning to the next one's
  uint64_t slice_elements = 1;  // of one block in one message
  uint64_t rounds = 1;

  // First element of a block within its buffer, and its length. No divisions here: they would be
  // half of a small call.
  uint64_t begin(int32_t block) const {
    const auto index = static_cast<uint64_t>(block);
    return rule == BlockRule::kSplit ? std::min(count, share * index) : count * index;
  }
  uint64_t length(int32_t block) const {
    return rule == BlockRule::kSplit ? begin(block + 1) - begin(block) : count;
  }
  // Elements of the block's slice in one round; it starts at begin(block) + round * slice_elements.
  uint64_t slice(int32_t block, uint64_t round) const {
    const uint64_t whole = length(block), from = round * slice_elements;
    return from >= whole ? 0 : std::min(slice_elements, whole - from);
  }
};

// slice_bytes: the longest message agreed for the plan's channels. The same on every rank.
Geometry make_geometry(const Plan& plan, uint64_t count, uint64_t type_bytes, uint64_t slice_bytes);

}  // namespace unisono
