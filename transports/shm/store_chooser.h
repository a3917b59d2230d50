// How a writer stores its long messages: by ordinary stores, or past its caches by non-temporal
// ones.
//
// Which is faster depends on where the reader's core is. From the caches of a neighbour (one core's
// threads, one shared cache) an ordinary message is read at once, and the detour over memory costs
// twice as much. From a core behind the processor's fabric each line is fetched out of the writer's
// cache by itself, and the detour takes less than half the time. No topology file says this on a
// virtual machine, whose cores even move; so every sixteenth message is timed, at both ends, and
// every sixty-fourth or less is written the other way.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace unisono::shm {

// One channel's. Lengths differ in what they cost, so each power of two learns by itself.
class StoreChooser {
 public:
  struct Choice {
    bool streaming = false;
    bool timed = false;  // sample() is to follow, once both ends know
  };
  Choice next(uint32_t bytes);
  // Of a timed message: what writing and reading it took, in ticks. A peer's word may be in it.
  void sample(uint32_t bytes, bool streaming, uint64_t ticks);

 private:
  struct Class {
    float ticks_a_byte[2] = {0, 0};  // ordinary, streaming; 0: not known yet
    uint32_t messages = 0;
    bool streaming = false;
  };
  Class& class_of(uint32_t bytes) {
    return classes_[static_cast<size_t>(std::bit_width(bytes)) % classes_.size()];
  }
  std::array<Class, 24> classes_;  // up to kMaxSliceBytes
};

}  // namespace unisono::shm
