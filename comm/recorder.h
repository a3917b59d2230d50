// Recorder: what this rank issued lately, for comparison when somebody stalls. Written by the
// driving thread on each call (a few plain stores), read by the control thread.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <optional>

#include "comm/call.h"
#include "comm/control/control.h"

namespace unisono {

class Recorder {
 public:
  // `algorithm` must live for ever (a registry's name).
  void record(uint64_t sequence, uint64_t fingerprint, uint64_t before, const Call& call,
              const char* algorithm) {
    Entry& e = entries_[sequence % kEntries];
    e.sequence.store(0, std::memory_order_relaxed);  // readers skip it until it is whole
    // Release stores keep the order "not whole, fields, whole"; on x86 they cost nothing.
    e.fingerprint.store(fingerprint, std::memory_order_release);
    e.before.store(before, std::memory_order_release);
    e.count.store(call.count, std::memory_order_release);
    e.blocks_hash.store(call.blocks == nullptr ? 0 : call.blocks->hash, std::memory_order_release);
    e.shape.store(pack(call), std::memory_order_release);
    e.algorithm.store(algorithm, std::memory_order_release);
    e.sequence.store(sequence, std::memory_order_release);
  }

  std::optional<CallRecord> find(uint64_t sequence) const {
    if (sequence == 0) return std::nullopt;
    const Entry& e = entries_[sequence % kEntries];
    if (e.sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;
    CallRecord record;
    record.sequence = sequence;
    record.fingerprint = e.fingerprint.load(std::memory_order_acquire);
    record.before = e.before.load(std::memory_order_acquire);
    record.count = e.count.load(std::memory_order_acquire);
    record.blocks_hash = e.blocks_hash.load(std::memory_order_acquire);
    const uint64_t shape = e.shape.load(std::memory_order_acquire);
    const char* algorithm = e.algorithm.load(std::memory_order_acquire);
    if (e.sequence.load(std::memory_order_relaxed) != sequence) return std::nullopt;
    record.collective = static_cast<Collective>(shape & 0xff);
    record.type = static_cast<DataType>(shape >> 8 & 0xff);
    record.op = static_cast<RedOp>(shape >> 16 & 0xff);
    record.root = static_cast<int32_t>(shape >> 32);
    std::strncpy(record.algorithm, algorithm, sizeof record.algorithm - 1);
    return record;
  }

 private:
  static constexpr size_t kEntries = 128;
  struct alignas(64) Entry {
    std::atomic<uint64_t> sequence{0}, fingerprint{0}, before{0}, count{0}, blocks_hash{0},
        shape{0};
    std::atomic<const char*> algorithm{""};
  };
  static uint64_t pack(const Call& call) {
    return static_cast<uint64_t>(call.collective) | static_cast<uint64_t>(call.type) << 8 |
           static_cast<uint64_t>(call.op) << 16 |
           static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 32;
  }
  std::array<Entry, kEntries> entries_;
};

}  // namespace unisono
