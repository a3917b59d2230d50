// Any bytes as a frame of the tcp transport: refused, or within bounds and written back the same.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "transports/tcp/frame.h"
#include "transports/transport.h"

using namespace unisono;

namespace {

constexpr size_t kMagicBytes = 2;

void check_one(const std::array<std::byte, tcp::kFrameBytes>& bytes) {
  tcp::FrameHeader header;
  if (!tcp::parse_frame(bytes, &header).ok()) return;
  CHECK(header.bytes <= kMaxSliceBytes);
  CHECK(header.kind == tcp::FrameKind::kData || header.bytes == 0);
  std::array<std::byte, tcp::kFrameBytes> again;
  tcp::encode_frame(header, again);
  CHECK(again == bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::array<std::byte, tcp::kFrameBytes> bytes{};
  if (size > 0) std::memcpy(bytes.data(), data, size < bytes.size() ? size : bytes.size());
  check_one(bytes);
  // Random bytes hardly ever begin as a frame does: the same with a right beginning, so that the
  // fields behind are read.
  std::array<std::byte, tcp::kFrameBytes> right;
  tcp::FrameHeader header;
  header.kind = static_cast<tcp::FrameKind>(1 + std::to_integer<int>(bytes[2]) % 3);
  tcp::encode_frame(header, right);
  std::memcpy(bytes.data(), right.data(), kMagicBytes + 1);
  bytes[3] &= std::byte{3};
  check_one(bytes);
  std::memset(bytes.data() + 6, 0, 2);
  std::memset(bytes.data() + 10, 0, 2);
  std::memset(bytes.data() + 28, 0, 4);
  check_one(bytes);
  return 0;
}
