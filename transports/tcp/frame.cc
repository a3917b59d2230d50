#include "transports/tcp/frame.h"

#include <cstring>

#include "transports/transport.h"

namespace unisono::tcp {
namespace {

constexpr uint16_t kMagic = 0x4e55;  // "UN"
constexpr uint8_t kEveryoneFlag = 1, kCreditFlag = 2;

// Offsets of the fields. Bytes 6-7 and 28-31 are zero.
constexpr size_t kMagicAt = 0, kKindAt = 2, kFlagsAt = 3, kChannelAt = 4, kCreditChannelAt = 5;
constexpr size_t kZeroAt = 6, kBytesAt = 8, kSequenceAt = 12, kFingerprintAt = 16, kReleasedAt = 24;
constexpr size_t kTailAt = 28;

template <class T>
void put(std::span<std::byte, kFrameBytes> out, size_t at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out[at + i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

template <class T>
T get(std::span<const std::byte, kFrameBytes> in, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<uint64_t>(std::to_integer<uint8_t>(in[at + i])) << (8 * i);
  }
  return static_cast<T>(value);
}

}  // namespace

void encode_frame(const FrameHeader& header, std::span<std::byte, kFrameBytes> out) {
  const int flags = (header.everyone ? kEveryoneFlag : 0) | (header.has_credit ? kCreditFlag : 0);
  put<uint16_t>(out, kMagicAt, kMagic);
  put<uint8_t>(out, kKindAt, static_cast<uint8_t>(header.kind));
  put<uint8_t>(out, kFlagsAt, static_cast<uint8_t>(flags));
  put<uint8_t>(out, kChannelAt, header.channel);
  put<uint8_t>(out, kCreditChannelAt, header.credit_channel);
  put<uint16_t>(out, kZeroAt, 0);
  put<uint32_t>(out, kBytesAt, header.bytes);
  put<uint32_t>(out, kSequenceAt, header.sequence);
  put<uint64_t>(out, kFingerprintAt, header.fingerprint);
  put<uint32_t>(out, kReleasedAt, header.released);
  put<uint32_t>(out, kTailAt, 0);
}

Status parse_frame(std::span<const std::byte, kFrameBytes> in, FrameHeader* header) {
  const auto wrong = [](const char* field, uint64_t value) {
    return error(Code::kRemoteError, "malformed frame: {} is {:#x}", field, value);
  };
  const auto magic = get<uint16_t>(in, kMagicAt);
  const auto kind = get<uint8_t>(in, kKindAt);
  const auto flags = get<uint8_t>(in, kFlagsAt);
  if (magic != kMagic) return wrong("magic", magic);
  if (kind < 1 || kind > 3) return wrong("kind", kind);
  if ((flags & ~(kEveryoneFlag | kCreditFlag)) != 0) return wrong("flags", flags);
  FrameHeader parsed;
  parsed.kind = static_cast<FrameKind>(kind);
  parsed.everyone = (flags & kEveryoneFlag) != 0;
  parsed.has_credit = (flags & kCreditFlag) != 0;
  parsed.channel = get<uint8_t>(in, kChannelAt);
  parsed.credit_channel = get<uint8_t>(in, kCreditChannelAt);
  parsed.released = get<uint32_t>(in, kReleasedAt);
  parsed.bytes = get<uint32_t>(in, kBytesAt);
  parsed.sequence = get<uint32_t>(in, kSequenceAt);
  parsed.fingerprint = get<uint64_t>(in, kFingerprintAt);
  const uint32_t padding = get<uint16_t>(in, kZeroAt) | get<uint32_t>(in, kTailAt);
  if (padding != 0) return wrong("padding", padding);
  if (parsed.bytes > kMaxSliceBytes) return wrong("length", parsed.bytes);
  if (!parsed.has_credit && (parsed.credit_channel != 0 || parsed.released != 0)) {
    return wrong("released without a credit", parsed.released);
  }
  if (parsed.kind != FrameKind::kData &&
      (parsed.bytes != 0 || parsed.sequence != 0 || parsed.fingerprint != 0 || parsed.everyone)) {
    return wrong("kind with data's fields", kind);
  }
  if (parsed.kind == FrameKind::kCredit) {
    if (!parsed.has_credit) return wrong("credit", 0);
    if (parsed.channel != 0) return wrong("credit with a channel", parsed.channel);
  }
  *header = parsed;
  return {};
}

}  // namespace unisono::tcp
