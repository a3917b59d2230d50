// The rule that names slow links.
#pragma once

#include <string>
#include <vector>

#include "bench/comm_bench/json.h"

namespace bench {

inline constexpr const char* kSlowRule =
    "a pair is slow when its bandwidth is under half, or its latency over twice, the median of all "
    "pairs";

// Pure. `all` has pingpong.pairs[{ranks[2], latency, bandwidth, transport}] and devices[{rank,
// host}]. Adds pingpong.rule, .median_latency, .median_bandwidth, .slow_links[{ranks, hosts,
// transport, latency_ratio, bandwidth_ratio, why[]}], and .common_host where every slow link, of
// two or more, ends at one host.
void name_slow_links(Json* all);

}  // namespace bench
