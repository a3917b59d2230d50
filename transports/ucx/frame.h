// Frames: the 32 bytes before each message of the ucx transport.
//
// What a peer wrote is input: parse_frame() checks everything that can be checked without knowing
// the channel. Pure; fuzzed by tests/fuzz.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace unisono::ucx {

inline constexpr size_t kFrameBytes = 32;

enum class FrameKind : uint8_t {
  kData = 1,      // one message; the payload follows
  kCredit = 2,    // nothing but a credit, or not even that
  kFarewell = 3,  // the last frame: an end of the link after it is no failure
};

struct Frame {
  FrameKind kind = FrameKind::kData;
  uint8_t channel = 0;         // data: the channel's number
  bool has_credit = false;     // credit_channel and released count
  uint8_t credit_channel = 0;  // a channel of the opposite direction ...
  uint32_t released = 0;       // ... and how many of its messages were released, mod 2^32
  int32_t writer = 0;          // the rank that sent this
  uint32_t sequence = 0;       // data: index of the message in its channel, mod 2^32
  uint64_t fingerprint = 0;    // data: opaque
  uint64_t token = 0;          // the reader's: proves that the writer was told its address
  bool operator==(const Frame&) const = default;
};

void encode_frame(const Frame& frame, std::span<std::byte, kFrameBytes> out);
// kRemoteError says which field is wrong.
Status parse_frame(std::span<const std::byte, kFrameBytes> in, Frame* frame);

}  // namespace unisono::ucx
