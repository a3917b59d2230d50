// The table on standard output (nccl-tests' columns) and the same as JSON. Rank 0 only.
#pragma once

#include <string>
#include <vector>

#include "bench/comm_bench/json.h"
#include "bench/comm_bench/measure.h"
#include "bench/comm_bench/options.h"
#include "bench/comm_bench/run_facts.h"
#include "bench/comm_bench/work.h"

namespace bench {

struct Row {
  WorkBuffers::Case c;
  std::string op;
  Timing out_of_place, in_place;
  bool has_in_place = true;
  std::string algorithm;
  double bound_us = 0;                  // 0: not measured
  double private_bound_us[2] = {0, 0};  // out of place, in place; 0: not measured
  double flag_before_us = 0, flag_after_us = 0;
};

class Report {
 public:
  Report(const Options& options, int ranks);
  void header(const std::vector<RankLine>& lines, Json facts);  // of run_facts()
  void progress(const std::string& text);                       // on a terminal only
  void row(const Row& row);
  // The footer; writes the files. False if elements were wrong or a file could not be written.
  bool footer();

 private:
  void clear_progress();
  Json timing_json(const Row& row, const Timing& timing) const;

  const Options& options_;
  int ranks_;
  bool terminal_;
  size_t wrong_ = 0;
  double bus_sum_ = 0;
  size_t bus_count_ = 0;
  Json json_;
};

}  // namespace bench
