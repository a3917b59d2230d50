// Geometry: where a plan's chunks lie in a call's buffers, round by round (PLAN_MACHINE rule 6).
// Pure arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

#include "algorithms/plan.h"
#include "comm/block_table.h"

namespace unisono {

struct Geometry {
  BlockRule rule = BlockRule::kWhole;
  uint64_t count = 0;           // of the call
  uint64_t share = 0;           // kSplit: elements from one block's beginning to the next one's
  uint64_t slice_elements = 1;  // of one block in one message
  uint64_t rounds = 1;
  const BlockTable* table = nullptr;  // kWhole with unequal blocks; the call's
  bool table_in_input = false;        // whose blocks they are: the input's, or the output's

  // First element of a block within the call's input or output, and its length. No divisions here:
  // they would be half of a small call.
  uint64_t begin(int32_t block, bool in_input) const {
    const auto index = static_cast<uint64_t>(block);
    if (__builtin_expect(table != nullptr, 0)) {
      return in_input == table_in_input ? table->offsets[index] : 0;  // the other holds one block
    }
    return rule == BlockRule::kSplit ? std::min(count, share * index) : count * index;
  }
  uint64_t length(int32_t block) const {
    if (__builtin_expect(table != nullptr, 0)) return table->lengths[static_cast<size_t>(block)];
    if (rule != BlockRule::kSplit) return count;
    const uint64_t from = share * static_cast<uint64_t>(block);
    return std::min(count, from + share) - std::min(count, from);
  }
  uint64_t longest() const { return table != nullptr ? table->longest : length(0); }
  // Elements of the block's slice in one round; it starts round * slice_elements after begin.
  uint64_t slice(int32_t block, uint64_t round) const {
    const uint64_t whole = length(block), from = round * slice_elements;
    return from >= whole ? 0 : std::min(slice_elements, whole - from);
  }
};

// slice_bytes: the longest message agreed for the plan's channels. The same on every rank. `table`:
// of a v-variant, else null; outlives the geometry.
Geometry make_geometry(const Plan& plan, uint64_t count, uint64_t type_bytes, uint64_t slice_bytes,
                       const BlockTable* table = nullptr);

}  // namespace unisono
