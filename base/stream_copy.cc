// Compiled once a target by Highway's foreach_target.h; what runs here is chosen at the first call.
#include "base/stream_copy.h"

#include <cstdint>
#include <cstring>

// More targets would cost code and gain nothing: whole lines leave, whatever the vectors' size.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/stream_copy.cc"
#include "hwy/foreach_target.h"
// Behind it.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace unisono {
namespace HWY_NAMESPACE {
namespace {

void copy(uint8_t* to, const uint8_t* from, size_t bytes) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr hn::CappedTag<uint8_t, 32> d;
  constexpr size_t kLine = 64;
  const size_t vector = hn::Lanes(d);
  const size_t past_line = reinterpret_cast<uintptr_t>(to) % kLine;
  const size_t head = past_line == 0 ? 0 : kLine - past_line;
  if (bytes < head + kLine) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  size_t at = head;
  for (; bytes - at >= kLine; at += kLine) {
    for (size_t part = 0; part < kLine; part += vector) {
      hn::Stream(hn::LoadU(d, from + at + part), d, to + at + part);
    }
  }
  hwy::FlushStream();
  std::memcpy(to + at, from + at, bytes - at);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace unisono
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace unisono {
namespace {
HWY_EXPORT(copy);
}

void stream_copy(void* to, const void* from, size_t bytes) {
  HWY_DYNAMIC_DISPATCH(copy)(static_cast<uint8_t*>(to), static_cast<const uint8_t*>(from), bytes);
}

}  // namespace unisono
#endif  // HWY_ONCE
