#include "transports/shm/store_chooser.h"

#include <algorithm>

namespace unisono::shm {
namespace {

constexpr uint32_t kTimedEvery = 16;
constexpr uint32_t kOtherEvery = 64;
// Of shorter ones that many times fewer: the timing itself costs as much as a line or two.
constexpr uint32_t kShortBytes = 32768, kFewer = 4;
// The other way must be so much better: what is equal stays as it is.
constexpr float kBetter = 0.9F;
// Where the other way is so much worse, looking at it is itself a cost: it is done less often.
constexpr float kClear = 1.5F;
// A rank that lost its core while it wrote or read says nothing about memory: no sample counts for
// more than this many times what was known.
constexpr float kMostRise = 4;

}  // namespace

StoreChooser::Choice StoreChooser::next(uint32_t bytes) {
  Class& one = class_of(bytes);
  const uint32_t n = one.messages++;
  if (one.ticks_a_byte[0] == 0) return {.streaming = false, .timed = true};
  if (one.ticks_a_byte[1] == 0) return {.streaming = true, .timed = true};
  const uint32_t fewer = bytes < kShortBytes ? kFewer : 1;
  const float other = one.ticks_a_byte[one.streaming ? 0 : 1];
  const bool clear = other > kClear * one.ticks_a_byte[one.streaming ? 1 : 0];
  const auto due = [n](uint32_t every) { return (n & (every - 1)) == 0; };  // powers of two
  if (due(fewer * kOtherEvery * (clear ? kFewer : 1))) {
    return {.streaming = !one.streaming, .timed = true};
  }
  return {.streaming = one.streaming, .timed = due(fewer * kTimedEvery)};
}

// Chance only ever adds: a lower sample is believed at once, a higher one by and by.
void StoreChooser::sample(uint32_t bytes, bool streaming, uint64_t ticks) {
  Class& one = class_of(bytes);
  float& known = one.ticks_a_byte[streaming ? 1 : 0];
  const float seen = static_cast<float>(ticks + 1) / static_cast<float>(bytes);
  if (known == 0 || seen <= known) {
    known = seen;
  } else {
    known += (std::min(seen, kMostRise * known) - known) / 4;
  }
  const float other = one.ticks_a_byte[one.streaming ? 0 : 1];
  if (other != 0 && other < kBetter * one.ticks_a_byte[one.streaming ? 1 : 0]) {
    one.streaming = !one.streaming;
  }
}

}  // namespace unisono::shm
