// Starts the ranks: N pinned local processes of our own, or one rank of whatever launcher started
// us.
#pragma once

#include <functional>

#include "bench/comm_bench/options.h"

namespace bench {

// Memory that all ranks started by --ranks share (null otherwise): only for measuring the machine's
// bounds.
struct Shared {
  void* memory = nullptr;
  size_t bytes = 0;
};

// Runs body(comm, rank, ranks, shared) once in each rank's process; returns the exit status of the
// whole.
using Body = std::function<int(uniComm_t comm, int rank, int ranks, const Shared& shared)>;
int launch(const Options& options, const Body& body);

// What the options ask of a communicator; borrows their strings.
uniConfig_t make_config(const Options& options);
// Puts this process onto core rank % cores, of those that it may use.
void pin_to_core(int rank);

// The exit status of this process: `status`, or 3, with a message, if stdout could not be written.
int flushed(int status);

// Prints what the library says and ends this process with status 3, if result is not success.
void must(uniResult_t result, const char* what, uniComm_t comm = nullptr);

}  // namespace bench
