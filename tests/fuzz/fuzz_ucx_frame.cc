// Any bytes as a frame of the ucx transport: refused, or written back the same.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "transports/ucx/frame.h"

using namespace unisono;

namespace {

void check_one(const std::array<std::byte, ucx::kFrameBytes>& bytes) {
  ucx::Frame frame;
  if (!ucx::parse_frame(bytes, &frame).ok()) return;
  CHECK(frame.writer >= 0);
  CHECK(frame.kind >= ucx::FrameKind::kData && frame.kind <= ucx::FrameKind::kFarewell);
  std::array<std::byte, ucx::kFrameBytes> again;
  ucx::encode_frame(frame, again);
  CHECK(again == bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::array<std::byte, ucx::kFrameBytes> bytes{};
  if (size > 0) std::memcpy(bytes.data(), data, size < bytes.size() ? size : bytes.size());
  check_one(bytes);
  // Random bytes hardly ever begin as a frame does: the same with a right beginning.
  bytes[0] = static_cast<std::byte>(1 + std::to_integer<int>(bytes[0]) % 3);
  bytes[2] &= std::byte{1};
  bytes[11] &= std::byte{0x7f};
  check_one(bytes);
  return 0;
}
