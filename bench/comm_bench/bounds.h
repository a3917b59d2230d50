// The machine's own bounds, measured in the same run and the same processes: what no library could
// beat.
#pragma once

#include <cstddef>

#include "bench/comm_bench/launch.h"
#include "bench/comm_bench/measure.h"

namespace bench {

// One-way latency of a flag between ranks 0 and 1, microseconds; 0 where it cannot be measured (no
// shared memory).
double flag_latency_us(const Shared& shared, const Ranks& ranks);
// All-reduce (float32 sum) of buffers in one shared mapping, inputs rewritten: each rank reads its
// slice of all inputs and writes that slice of all outputs. Other collectives: one core copies the
// bytes a rank must receive. Microseconds.
double bound_us(const Options& options, const Shared& shared, const Ranks& ranks,
                const Sizes& sizes, size_t type_bytes);

}  // namespace bench
