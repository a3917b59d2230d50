// Latency and bandwidth between all pairs of ranks, one pair at a time.
#pragma once

#include "bench/comm_bench/measure.h"
#include "bench/comm_bench/options.h"

namespace bench {

// Collective. Exit status: 0, or 1 if bytes came back wrong or a file could not be written.
int ping_pong(const Options& options, const Ranks& ranks);

}  // namespace bench
