#include "transports/ucx/frame.h"

#include <bit>
#include <cstring>

namespace unisono::ucx {
namespace {

// As on the wire: little-endian.
struct Wire {
  uint8_t kind, channel, has_credit, credit_channel;
  uint32_t released;
  int32_t writer;
  uint32_t sequence;
  uint64_t fingerprint, token;
};
static_assert(sizeof(Wire) == kFrameBytes && std::endian::native == std::endian::little);

}  // namespace

void encode_frame(const Frame& frame, std::span<std::byte, kFrameBytes> out) {
  const Wire wire{static_cast<uint8_t>(frame.kind),
                  frame.channel,
                  static_cast<uint8_t>(frame.has_credit),
                  frame.credit_channel,
                  frame.released,
                  frame.writer,
                  frame.sequence,
                  frame.fingerprint,
                  frame.token};
  std::memcpy(out.data(), &wire, sizeof wire);
}

Status parse_frame(std::span<const std::byte, kFrameBytes> in, Frame* frame) {
  Wire wire;
  std::memcpy(&wire, in.data(), sizeof wire);
  if (wire.kind < static_cast<uint8_t>(FrameKind::kData) ||
      wire.kind > static_cast<uint8_t>(FrameKind::kFarewell)) {
    return error(Code::kRemoteError, "malformed message: unknown kind {}", wire.kind);
  }
  if (wire.has_credit > 1) {
    return error(Code::kRemoteError, "malformed message: flags {}", wire.has_credit);
  }
  if (wire.writer < 0) {
    return error(Code::kRemoteError, "malformed message: of rank {}", wire.writer);
  }
  frame->kind = static_cast<FrameKind>(wire.kind);
  frame->channel = wire.channel;
  frame->has_credit = wire.has_credit != 0;
  frame->credit_channel = wire.credit_channel;
  frame->released = wire.released;
  frame->writer = wire.writer;
  frame->sequence = wire.sequence;
  frame->fingerprint = wire.fingerprint;
  frame->token = wire.token;
  return {};
}

}  // namespace unisono::ucx
