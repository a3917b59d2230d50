// BlockTable: the unequal blocks of a v-variant (all-gather-v and its kin), in elements. Lengths
// are the same on every rank and part of the fingerprint; offsets are this rank's own affair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace unisono {

inline uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

struct BlockTable {
  std::vector<uint64_t> lengths, offsets;  // by block; offsets into the buffer that holds them all
  uint64_t longest = 0, total = 0;
  uint64_t hash = 0;    // of the lengths
  bool packed = false;  // each block begins where the one before ends
};

// `offsets` null: packed. The caller has checked that nothing overflows.
std::shared_ptr<const BlockTable> make_block_table(const size_t* lengths, const size_t* offsets,
                                                   size_t blocks);

}  // namespace unisono
