#include "algorithms/verify/memory_map.h"

namespace unisono::verify {

bool has_in_place_form(const Plan& plan) {
  return plan.input_blocks > 0 && plan.output_blocks > 0 &&
         plan.collective != Collective::kAllToAll && plan.collective != Collective::kBarrier;
}

MemoryMap::MemoryMap(const Plan& plan, bool in_place)
    : input_blocks_(plan.input_blocks),
      output_blocks_(plan.output_blocks),
      output_(static_cast<size_t>(plan.output_blocks)) {
  for (int32_t b = 0; b < output_blocks_; ++b) {
    output_[static_cast<size_t>(b)] = input_blocks_ + b;
  }
  if (in_place && has_in_place_form(plan)) {
    switch (plan.collective) {
      case Collective::kAllGather:
      case Collective::kGather:  // only the root has an output
        output_[static_cast<size_t>(plan.rank)] = 0;
        break;
      case Collective::kReduceScatter:
      case Collective::kScatter:  // only the root has an input
        output_[0] = plan.rank;
        break;
      default:
        for (int32_t b = 0; b < output_blocks_; ++b) output_[static_cast<size_t>(b)] = b;
    }
  }
  scratch_begin_ = size_ = input_blocks_ + output_blocks_;
  for (int32_t blocks : plan.scratch_blocks) {
    scratch_first_.push_back(size_);
    size_ += blocks;
  }
}

int32_t MemoryMap::location(const Chunk& chunk, int32_t i) const {
  switch (chunk.buffer) {
    case Buffer::kInput:
      return (chunk.first + i) % input_blocks_;
    case Buffer::kOutput:
      return output_[static_cast<size_t>((chunk.first + i) % output_blocks_)];
    case Buffer::kScratch:
      break;
  }
  return scratch_first_[static_cast<size_t>(chunk.lane)] + chunk.first + i;
}

int32_t blocks_of(const Plan& plan, const Chunk& chunk) {
  switch (chunk.buffer) {
    case Buffer::kInput:
      return plan.input_blocks;
    case Buffer::kOutput:
      return plan.output_blocks;
    case Buffer::kScratch:
      break;
  }
  return plan.scratch_blocks[static_cast<size_t>(chunk.lane)];
}

}  // namespace unisono::verify
