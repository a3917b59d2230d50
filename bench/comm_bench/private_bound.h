// What all-reduce of private buffers costs at least, in the same run and the same processes: the
// passes over memory that it cannot do without, by plain loops, with nothing of a library around
// them.
#pragma once

#include <cstddef>

#include "bench/comm_bench/launch.h"
#include "bench/comm_bench/measure.h"

namespace bench {

// float32 sum of `count` elements in buffers that only their owner can read, inputs as they are
// left by the call before. Every rank copies what the others need into a shared mapping; they meet;
// each sums its slice into its output and into the mapping; they meet; each copies the other slices
// from there, in rounds of up to 128 KiB a rank. Up to 4 KiB instead everyone writes its input
// beside a flag, and sums all. The least of three sizes of the mapping that they rotate
// through, written by ordinary and by non-temporal stores.
// Microseconds a call on the slowest rank, median of batches; 0 where there is no shared memory, or
// too little.
double private_bound_us(const Shared& shared, const Ranks& ranks, size_t count, bool in_place);

}  // namespace bench
