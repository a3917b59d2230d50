// Check values: chosen so that every operation's exact result is representable in every type,
// whatever the order of evaluation, and so that a shifted or stale element shows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/comm_bench/options.h"

namespace bench {

inline constexpr size_t kPeriod =
    251;  // elements; prime, so that no power-of-two shift maps it onto itself

// One period of what rank `rank` contributes to an operation, as bytes of the type.
std::string input_period(const TypeRow& type, uniRedOp_t op, int rank, int ranks);
// One period of the reduction over all ranks.
std::string reduced_period(const TypeRow& type, uniRedOp_t op, int ranks);

// Writes `count` elements of the repeated period, starting at element `first` of the pattern.
void fill(void* to, const std::string& period, size_t type_bytes, size_t first, size_t count);
// Counts elements that differ from it.
size_t count_wrong(const void* from, const std::string& period, size_t type_bytes, size_t first,
                   size_t count);

}  // namespace bench
