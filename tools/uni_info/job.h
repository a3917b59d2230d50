// A job to ask: ranks of our own, or this process as one rank of a launcher's.
#pragma once

#include "tools/uni_info/gather.h"

namespace unisono::uni_info {

// Starts this many local processes, meets them, and waits for their end. Before any other call of
// the library in this process (they are its forks). {"problem": why} if they did not meet.
Json ask_local_job(int ranks);
// This process is a rank of the launcher that started it (uni-run, mpirun, torchrun ...): the
// answer at rank 0, null at the others, {"problem": why} where it failed.
Json ask_launched_job();

}  // namespace unisono::uni_info
