// One benchmarked collective: its buffers, how to issue it, what must come out.
#pragma once

#include <cstddef>
#include <string>

#include "bench/comm_bench/options.h"

namespace bench {

// How a size in bytes turns into counts: nccl-tests' rules (all-gather and kin: size is the total
// over ranks).
struct Sizes {
  size_t count = 0;     // the call's count
  size_t elements = 0;  // the table's column
  size_t bytes = 0;     // actual size
  size_t send_elements = 0, recv_elements = 0;
};
Sizes sizes_of(Work work, size_t bytes, size_t type_bytes, int ranks);
// Factor from algbw to busbw.
double bus_factor(Work work, int ranks);

class WorkBuffers {
 public:
  // Room for `most_bytes` of the collective's size, in `copies` places (more than one: off-cache
  // walking).
  WorkBuffers(const Options& options, uniComm_t comm, int rank, int ranks, size_t most_bytes);
  ~WorkBuffers();
  WorkBuffers(const WorkBuffers&) = delete;

  struct Case {
    const TypeRow* type;
    uniRedOp_t op;
    int root;
    Sizes sizes;
    bool in_place;
  };
  void fill_inputs(const Case& c);    // and spoils outputs
  void rewrite_input(const Case& c);  // the same values again: only the cache state changes
  void issue(const Case& c, uniStream_t stream);  // one call; walks to the next copy when cold
  void use(uniComm_t comm) { comm_ = comm; }      // of the same ranks: for the next issue()
  // The buffers that issue() would use, for somebody else's call; walks on as it does.
  struct Pointers {
    const char* send;
    char* recv;
  };
  Pointers next(const Case& c);
  size_t wrong(const Case& c) const;  // elements of this rank's output

 private:
  char* send_pointer(const Case& c, int copy) const;
  char* recv_pointer(const Case& c, int copy) const;

  const Options& options_;
  uniComm_t comm_;
  int rank_, ranks_, copies_ = 1, next_ = 0;
  size_t stride_ = 0;
  char *send_ = nullptr, *recv_ = nullptr;
  void *send_handle_ = nullptr, *recv_handle_ = nullptr;
};

}  // namespace bench
