// Every algorithm in turn, batch by batch in the same processes, beside the planner's own choice.
#pragma once

#include "bench/comm_bench/launch.h"
#include "bench/comm_bench/measure.h"
#include "bench/comm_bench/options.h"

namespace bench {

// Collective. Exit status: 0, or 1 if elements were wrong or the file could not be written.
int race(const Options& options, const Ranks& ranks, const Shared& shared);

}  // namespace bench
