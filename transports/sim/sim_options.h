// What "sim:seed=7,latency_us=2,gbps=10,overhead_us=0.3,jitter=0.5" says.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace unisono {

struct SimOptions {
  uint64_t seed = 1;
  int64_t latency_ns = 1000;    // latency_us: of every message, data and control alike
  int64_t overhead_ns = 200;    // overhead_us: between a send and its first byte on the wire
  double gigabytes_per_s = 10;  // gbps, 10^9 bytes a second of each link (writer, reader)
  double jitter = 0.5;          // up to this share of the latency is added at random
  bool late = false;  // late=1: every send completes only when its readers have released it
  // patience_ms: real time after which a world that cannot go on by its own rules (a rank's thread
  // that never came, a thread that keeps its turn while it does something else) goes on all the
  // same, with a warning. Replays are then not exact; correct use never gets there.
  int64_t patience_ms = 5000;
};

// Pairs key=value, separated by ',' or ';'. kInvalidArgument names the pair.
Result<SimOptions> parse_sim_options(std::string_view text);

// Stateless randomness: the same arguments give the same value, whatever happened in between.
uint64_t sim_hash(uint64_t a, uint64_t b, uint64_t c = 0, uint64_t d = 0);

}  // namespace unisono
