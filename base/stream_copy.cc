#include "base/stream_copy.h"

#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

namespace unisono {

// The baseline instruction set suffices: whole lines leave through the write buffers, whatever the
// vectors' size.
void stream_copy(void* to, const void* from, size_t bytes) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr hn::CappedTag<uint8_t, 16> d;
  constexpr size_t kVector = 16, kLine = 64;
  auto* out = static_cast<uint8_t*>(to);
  const auto* in = static_cast<const uint8_t*>(from);
  const size_t past_line = reinterpret_cast<uintptr_t>(out) % kLine;
  const size_t head = past_line == 0 ? 0 : kLine - past_line;
  if (hn::Lanes(d) != kVector || bytes < head + kLine) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(out, in, head);
  size_t at = head;
  for (; bytes - at >= kLine; at += kLine) {
    const auto a = hn::LoadU(d, in + at), b = hn::LoadU(d, in + at + kVector);
    const auto c = hn::LoadU(d, in + at + 2 * kVector), e = hn::LoadU(d, in + at + 3 * kVector);
    hn::Stream(a, d, out + at);
    hn::Stream(b, d, out + at + kVector);
    hn::Stream(c, d, out + at + 2 * kVector);
    hn::Stream(e, d, out + at + 3 * kVector);
  }
  hwy::FlushStream();
  std::memcpy(out + at, in + at, bytes - at);
}

}  // namespace unisono
