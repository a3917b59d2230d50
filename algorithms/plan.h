// Plan: what one rank does in one collective, as data. shared vocabulary of executor, verifier,
// simulator and tools.
//
// The meaning of every field is that of docs/plan-machine.md (rules are cited by number). A plan
// knows chunks, never pointers, bytes or types, so one plan serves every size, type and buffer.
// Plain values: copy freely, share as const.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.h"

namespace unisono {

enum class Buffer : uint8_t { kInput, kOutput, kScratch };

// `blocks` consecutive blocks from `first`, modulo the buffer's block count (rule 6). Scratch
// blocks are per owner lane.
struct Chunk {
  Buffer buffer = Buffer::kInput;
  int8_t lane = 0;  // scratch only: the owner lane
  int32_t first = 0;
  int32_t blocks = 1;
  bool operator==(const Chunk&) const = default;
};

inline constexpr int32_t kAllButWriter = -1;  // a channel's reader set (rule 12)

// (number, one writer, a set of readers): FIFO (rule 1). Ranks are the communicator's.
struct ChannelId {
  int32_t number = 0;
  int32_t writer = 0;
  int32_t reader = 0;  // a rank, or kAllButWriter
  bool operator==(const ChannelId&) const = default;
  auto operator<=>(const ChannelId&) const = default;
};

// Operand of a step: a local chunk, or the next message of a channel (index into Plan::channels).
struct Operand {
  bool receive = false;
  int16_t channel = -1;  // receive only
  Chunk chunk;           // local only
  bool operator==(const Operand&) const = default;
};

// `lane`'s counter has passed `step` of round k - lag (rule 11); lag is 0 or 2.
struct Await {
  int8_t lane = 0;
  int8_t lag = 0;
  int32_t step = 0;
  bool operator==(const Await&) const = default;
};

// sources, reduced left to right -> destination and/or forward (rule 9).
struct Step {
  std::vector<Operand> sources;
  bool has_destination = false;
  Chunk destination;
  int16_t forward = -1;  // channel index, -1: none
  // The step's one length: `length.blocks` blocks of the shape from `length.first` (rules 6, 9).
  // Every operand, the destination and the message have this many elements.
  Chunk length;
  bool final = false;  // makes an output chunk's final value: avg divides here (rule 15)
  std::vector<Await> awaits;
  bool operator==(const Step&) const = default;
};

// repeat(times, body): steps [first, first + body * times) of the lane are `times` copies of a body
// whose chunks and peers advance by fixed amounts (rule 12). Steps are stored unrolled; this says
// how to print and store them small.
struct Repeat {
  int32_t first = 0;
  int32_t body = 0;
  int32_t times = 0;
  bool operator==(const Repeat&) const = default;
};

struct Lane {
  std::string name;
  std::vector<Step> steps;
  std::vector<Repeat> repeats;
};

// How the buffers are cut (rule 6). All blocks of one call have the same formula:
//   kWhole:  each block is `count` elements (all-gather's output, all-to-all, ...).
//   kSplit:  one vector of `count` elements is cut into `blocks` blocks; see block_begin.
enum class BlockRule : uint8_t { kWhole, kSplit };

struct Plan {
  std::string algorithm;  // "ring"
  Collective collective = Collective::kAllReduce;
  int32_t ranks = 1, rank = 0, root = 0;
  BlockRule rule = BlockRule::kWhole;
  int32_t blocks = 1;               // of the longer buffer; kSplit: of both
  int32_t input_blocks = 1;         // 0: the rank has no input
  int32_t output_blocks = 1;        // 0: the rank has no output
  std::vector<ChannelId> channels;  // that this rank writes or reads
  std::vector<Lane> lanes;          // same order on every rank; empty lanes allowed
  // The builder's emission order over all lanes, as (lane, step): right if one thread runs it,
  // round after round (rule 10). The small path follows it.
  std::vector<std::pair<int8_t, int32_t>> order;
  std::vector<int32_t> scratch_blocks;  // per lane: how many scratch blocks it owns
  // Most blocks that any rank's messages pack; the same on every rank, so that all agree on the
  // slice (rule 6).
  int32_t message_blocks = 1;
  bool late = false;          // verified in late mode: sends by reference allowed (rule 5)
  bool reproducible = false;  // one node with the leaves 0..n-1 (rule 15)
};

// Elements from one block's beginning to the next one's when `count` elements are cut into `blocks`
// blocks. Blocks are multiples of `align` elements (but the last non-empty one), so that slices
// stay on cache lines.
inline uint64_t block_share(uint64_t count, int32_t blocks, uint64_t align) {
  const auto n = static_cast<uint64_t>(blocks);
  return (count / n + (count % n != 0) + align - 1) / align * align;
}

// Elements before block `block`: the one formula (rule 6).
inline uint64_t block_begin(uint64_t count, int32_t blocks, int32_t block, uint64_t align) {
  const uint64_t begin = block_share(count, blocks, align) * static_cast<uint64_t>(block);
  return begin < count ? begin : count;
}

}  // namespace unisono
