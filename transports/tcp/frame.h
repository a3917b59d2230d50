// Frames: the bytes that travel on a socket of the tcp transport.
//
// A frame is a header of 32 bytes, little-endian, and for data the payload behind it. Pure
// functions without state: what a peer wrote is input, so parse_frame() accepts nothing that
// encode_frame() would not write. Fuzzed by tests/fuzz.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace unisono::tcp {

inline constexpr size_t kFrameBytes = 32;

enum class FrameKind : uint8_t {
  kData = 1,      // one message; the payload follows
  kCredit = 2,    // nothing but a credit
  kFarewell = 3,  // the last frame: what ends the stream after it is no failure
};

struct FrameHeader {
  FrameKind kind = FrameKind::kData;
  bool everyone = false;       // of a channel with several readers
  bool has_credit = false;     // credit_channel and released count
  uint8_t channel = 0;         // data: the channel's number. Farewell: on how many sockets more
                               // the writer says it
  uint8_t credit_channel = 0;  // a channel of the opposite direction ...
  uint32_t released =
      0;  // ... and how many of its messages its reader has released since it was opened, mod 2^32
  uint32_t bytes = 0;        // data: of the payload
  uint32_t sequence = 0;     // data: index of the message in its channel, mod 2^32
  uint64_t fingerprint = 0;  // data: opaque
  bool operator==(const FrameHeader&) const = default;
};

void encode_frame(const FrameHeader& header, std::span<std::byte, kFrameBytes> out);
// kRemoteError says which field is wrong. Bounds `bytes` by kMaxSliceBytes; the channel's own bound
// is its reader's affair.
Status parse_frame(std::span<const std::byte, kFrameBytes> in, FrameHeader* header);

}  // namespace unisono::tcp
