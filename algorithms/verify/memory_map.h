// MemoryMap: gives every block that a rank's plan can name a number, equal numbers for blocks that
// are the same memory.
//
// The in-place forms (rule 16) differ only here: in place, some output blocks are input blocks.
#pragma once

#include <vector>

#include "algorithms/plan.h"

namespace unisono::verify {

// The rank has an in-place form at all: it owns both buffers and its collective lets them meet.
bool has_in_place_form(const Plan& plan);

class MemoryMap {
 public:
  MemoryMap(const Plan& plan, bool in_place);

  // The `i`-th block of `chunk`. Blocks count modulo the buffer's number of blocks.
  int32_t location(const Chunk& chunk, int32_t i) const;
  int32_t size() const { return size_; }
  bool is_scratch(int32_t location) const { return location >= scratch_begin_; }
  // Input and output blocks, by number.
  int32_t input(int32_t block) const { return block; }
  int32_t output(int32_t block) const { return output_[static_cast<size_t>(block)]; }
  // One name for each (location, round): input and output have a slice of their own in every round,
  // scratch one for each parity (rule 7). Below slots(rounds).
  int64_t slice(int32_t location, int64_t round) const {
    return is_scratch(location) ? rounds_end_ + (location - scratch_begin_) * 2 + round % 2
                                : round * scratch_begin_ + location;
  }
  int64_t slices(int64_t rounds) {
    rounds_end_ = rounds * scratch_begin_;
    return rounds_end_ + 2 * static_cast<int64_t>(size_ - scratch_begin_);
  }

 private:
  int32_t input_blocks_, output_blocks_;
  std::vector<int32_t> output_;         // location of an output block
  std::vector<int32_t> scratch_first_;  // by owner lane
  int32_t scratch_begin_ = 0, size_ = 0;
  int64_t rounds_end_ = 0;
};

// Blocks of a buffer of the plan.
int32_t blocks_of(const Plan& plan, const Chunk& chunk);

}  // namespace unisono::verify
