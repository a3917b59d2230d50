// Timing of one row, and the exchange of figures between ranks.
#pragma once

#include <cstddef>
#include <string>
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
  std::vector<double> batches;  // a call in each batch, over ranks; in the order of time
  std::vector<double> rank_us;  // a call at each rank: the median of its batches
  bool checked = false;
};

struct Ranks {
  uniComm_t comm = nullptr;
  int rank = 0, ranks = 1;
  void barrier() const;
  // Over all ranks: 0 rank 0's, 1 average, 2 least, 3 most.
  double combine(double value, int how) const;
  size_t sum(size_t value) const;
  std::vector<double> everyone(double value) const;  // by rank
};

Timing time_case(const Options& options, const Ranks& ranks, WorkBuffers& buffers,
                 const WorkBuffers::Case& c, uniStream_t stream);
std::string last_algorithm(uniComm_t comm);  // of its last collective
double median(std::vector<double> values);   // of an even number the upper one; 0 of none
double now_us();

}  // namespace bench
