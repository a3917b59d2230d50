// Call: one collective as the user asked for it, checked, in the library's own words.
#pragma once

#include <cstdint>
#include <memory>

#include "base/types.h"
#include "comm/block_table.h"

namespace unisono {

struct Call {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUint8;
  RedOp op = RedOp::kSum;
  int32_t root = -1;       // -1: the collective has none
  uint32_t op_handle = 0;  // the C API's value: tells created operations apart
  uint64_t count = 0;      // elements, as in the C API
  const void* send = nullptr;
  void* recv = nullptr;
  double scalar = 1;  // of a pre-multiplied sum
  // Of a v-variant, else null. `count` is then the sum of all blocks' elements.
  std::shared_ptr<const BlockTable> blocks;
};

// What all ranks must agree on, folded to 64 bits, without the sequence number. Pure.
inline uint64_t call_hash(const Call& call, uint64_t plan_hash) {
  uint64_t hash = mix(plan_hash, call.count);
  hash = mix(hash, static_cast<uint64_t>(call.collective) | static_cast<uint64_t>(call.type) << 8 |
                       static_cast<uint64_t>(call.op_handle) << 16);
  hash = mix(hash, static_cast<uint64_t>(static_cast<uint32_t>(call.root)));
  return call.blocks == nullptr ? hash : mix(hash, call.blocks->hash);
}
// With the sequence number: the fingerprint that rides every message. Never 0.
inline uint64_t fingerprint_of(uint64_t hash, uint64_t sequence) {
  return mix(hash, sequence) | 1;
}

}  // namespace unisono
