// Timing of one row, and the exchange of figures between ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/comm_bench/options.h"
#include "bench/comm_bench/work.h"

namespace bench {

struct Spread {  // of single calls, microseconds; only with -I
  double min = 0, max = 0, p99 = 0, cv = 0;
};

struct Timing {
  double us = 0;     // a call
  size_t wrong = 0;  // elements, over all ranks
  Spread spread;
  bool checked = false;
};

struct Ranks {
  uniComm_t comm = nullptr;
  int rank = 0, ranks = 1;
  void barrier() const;
  // Over all ranks: 0 rank 0's, 1 average, 2 least, 3 most.
  double combine(double value, int how) const;
  size_t sum(size_t value) const;
};

Timing time_case(const Options& options, const Ranks& ranks, WorkBuffers& buffers,
                 const WorkBuffers::Case& c, uniStream_t stream);
double now_us();

}  // namespace bench
