// What lies in a rank's shared segment. Both sides of a channel compile this file; version it with
// kLayoutVersion.
//
// Each rank owns one segment (a memfd, sparse, sealed against shrinking and growing) and its peers
// map it whole:
//
//   [SegmentHeader][directory: DirectoryEntry x kDirectoryEntries][channel block][channel block]...
//
// A channel lives in its writer's segment, so that a message is written once however many readers
// it has:
//
//   [released counter, one cache line a reader][Descriptor x kDescriptors]
//   [eager slot x kDescriptors][arena of payload]
//
// The writer fills a descriptor (payload of up to kInlineBytes beside the flag, in the flag's own
// line, and the next) and publishes it by storing its sequence number; larger payloads go to the
// arena, a ring of contiguous 64-byte aligned pieces of just the message's length, so that small
// messages rotate through all of it and no line is rewritten that the reader still caches. A reader
// publishes how many messages it has released in its counter, which the writer reads only when it
// has run out of known credit.
//
// Everything here may be scribbled on by a broken peer: who reads a peer's field copies it once,
// checks it, then uses it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transports/transport.h"

namespace unisono::shm {

inline constexpr uint64_t kSegmentMagic = 0x756e69736f6e6f73;  // "unisonos"
inline constexpr uint32_t kLayoutVersion = 4;
inline constexpr size_t kLineBytes = 64;
inline constexpr size_t kPageBytes = 4096;

struct Nonce {
  uint64_t words[2] = {0, 0};
  auto operator<=>(const Nonce&) const = default;
};

// Bits of SegmentHeader::sleeping.
inline constexpr uint32_t kAsleep = 1;       // ring after sending
inline constexpr uint32_t kWantsCredit = 2;  // ring after releasing, too

inline constexpr uint32_t kDirectoryEntries = 16384;

struct DirectoryEntry {
  uint32_t number;
  int32_t reader;
  uint32_t slice_bytes;
  uint32_t slots;
  uint64_t offset;  // of the channel block in the segment
  uint64_t reserved;
};

struct alignas(kLineBytes) SegmentHeader {
  uint64_t magic;
  uint32_t version;
  int32_t rank;
  Nonce nonce;
  uint64_t bytes;
  // Alone on its line: senders look at it after every message, and it changes only when the owner
  // goes to sleep.
  alignas(kLineBytes) std::atomic<uint32_t> sleeping;
  alignas(kLineBytes) std::atomic<uint32_t> directory_count;
  alignas(kLineBytes) DirectoryEntry directory[kDirectoryEntries];
};

struct alignas(kLineBytes) ReleasedLine {
  std::atomic<uint64_t> count;  // messages released since the channel's beginning
};

inline constexpr uint32_t kDescriptors = 64;  // messages in flight, at most; a power of two
inline constexpr uint32_t kInlineBytes = 104;
inline constexpr uint32_t kFirstLineBytes = 40;  // of payload, in the flag's own line
inline constexpr size_t kDescriptorBytes = 2 * kLineBytes;

// Which descriptor message n uses. Neighbours in time are not neighbours in memory: a prefetcher
// that runs ahead of a reader would take the very lines that the writer is about to fill.
inline constexpr uint64_t descriptor_index(uint64_t n) {
  return (n * 29) & (kDescriptors - 1);
}

// Descriptor::where: the low bits of an offset that is a multiple of 64.
enum : uint32_t {
  kInArena = 0,
  kInline = 1,
  kByReference = 2,
  kEager = 3,
  kTimed = 32,  // added: a reader is to say how long it had the message (Timing)
  kWhereMask = kLineBytes - 1
};

// Messages of up to this many bytes go to the slot beside their descriptor: all slots together fit
// into the L2, where the arena, which is to be larger than it, would make each small message fetch
// its lines from farther away.
inline constexpr uint32_t kEagerBytes = 4096;
// Not a multiple of a page: slots, and the buffers that they are copied from, must not all fall
// into the same cache sets.
inline constexpr uint32_t kEagerStride = kEagerBytes + kLineBytes;

struct Reference {
  uint64_t registration;
  uint64_t offset;
};

// In a timed descriptor, whose payload is elsewhere.
struct Timing {
  uint32_t reader;  // whose counter it is that times
};

struct alignas(kDescriptorBytes) Descriptor {
  std::atomic<uint64_t> sequence;  // n + 1 once the channel's message n is here
  uint64_t fingerprint;
  uint32_t bytes;
  uint32_t where;
  std::byte payload[kInlineBytes];  // or a Reference
};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "shared between processes");
static_assert(std::atomic<uint32_t>::is_always_lock_free, "shared between processes");
static_assert(sizeof(DirectoryEntry) == 32);
static_assert(sizeof(Descriptor) == kDescriptorBytes, "payload beside the flag");
static_assert(sizeof(ReleasedLine) == kLineBytes);
static_assert(sizeof(Reference) <= kInlineBytes);
// The answer, ticks of reading (ReadClock), lies behind it in the second line, which nobody polls.
static_assert(sizeof(Timing) <= kFirstLineBytes);
static_assert(kFirstLineBytes % sizeof(uint64_t) == 0);
static_assert((kDescriptors & (kDescriptors - 1)) == 0);
static_assert(offsetof(SegmentHeader, sleeping) % kLineBytes == 0);

inline constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Where the parts of a channel block begin; the same formula at both ends.
struct BlockLayout {
  uint32_t readers = 1;
  uint32_t slice_stride = 0;  // slice_bytes in whole lines
  uint64_t descriptors = 0;
  uint64_t eager = 0;
  uint64_t arena = 0;
  uint64_t arena_bytes = 0;
  uint64_t bytes = 0;
};

inline constexpr uint32_t kMinSlots = 2;
inline constexpr uint32_t kMaxSlots = kDescriptors;

inline constexpr bool valid_shape(const ChannelShape& shape) {
  return shape.slice_bytes >= 1 && shape.slice_bytes <= kMaxSliceBytes &&
         shape.slots >= kMinSlots && shape.slots <= kMaxSlots;
}

inline constexpr BlockLayout block_layout(const ChannelShape& shape, uint32_t readers) {
  BlockLayout layout;
  layout.readers = readers;
  layout.slice_stride = static_cast<uint32_t>(round_up(shape.slice_bytes, kLineBytes));
  layout.descriptors = round_up(uint64_t{readers} * sizeof(ReleasedLine), kPageBytes);
  layout.eager = round_up(layout.descriptors + kDescriptors * sizeof(Descriptor), kPageBytes);
  layout.arena = layout.eager + round_up(uint64_t{kDescriptors} * kEagerStride, kPageBytes);
  // One slice more than the slots: a piece is contiguous, so up to a slice is skipped where the
  // ring ends.
  layout.arena_bytes = (uint64_t{shape.slots} + 1) * layout.slice_stride;
  layout.bytes = round_up(layout.arena + layout.arena_bytes, kPageBytes);
  return layout;
}

}  // namespace unisono::shm
