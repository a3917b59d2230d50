// Which cores each rank may use.
#pragma once

#include <vector>

#include "base/status.h"
#include "tools/uni_run/options.h"

namespace unisono::uni_run {

// Numbers of the cores that this process may use, ascending.
Result<std::vector<int>> allowed_cores();
// Those of rank `rank` of `ranks`. kNone: all of them.
std::vector<int> cores_of_rank(const std::vector<int>& allowed, Bind bind, int ranks, int rank);

// A set of cores as sched_setaffinity() takes it, made before fork() because it allocates.
std::vector<unsigned long> core_mask(const std::vector<int>& cores);

}  // namespace unisono::uni_run
