// comm-bench --versus: another library's collectives beside ours. Both run in the same processes,
// on the same buffers, in batches that alternate (A B A B), so that the cores' mood, which changes
// figures 2-5x, is the same for both. One launch a peer, since each MPI needs its own mpirun;
// merged into one table.
#pragma once

#include <functional>
#include <vector>

#include "bench/comm_bench/options.h"

namespace bench {

// The parent: launches every peer of options.versus with this program's own arguments and prints
// the table. Returns the exit status: 0 when every peer that could run was right and so were we.
int run_versus(const Options& options, int argc, char** argv);

// A rank of one launch (options.versus_peer): measures and, on rank 0, writes its rows as JSON into
// options.versus_folder.
int run_versus_rank(const Options& options);

}  // namespace bench
