// The table on standard output (nccl-tests' columns) and the JSON file. Rank 0 only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/comm_bench/measure.h"
#include "bench/comm_bench/options.h"
#include "bench/comm_bench/work.h"

namespace bench {

struct RankLine {
  int rank = 0, pid = 0;
  std::string host, transport;
};

struct Row {
  WorkBuffers::Case c;
  std::string op;
  Timing out_of_place, in_place;
  bool has_in_place = true;
  std::string algorithm;
  double bound_us = 0;  // 0: not measured
  double flag_before_us = 0, flag_after_us = 0;
};

class Report {
 public:
  Report(const Options& options, int ranks);
  void header(const std::vector<RankLine>& lines);
  void progress(const std::string& text);  // on a terminal only
  void row(const Row& row);
  // The footer; writes the JSON file. False if elements were wrong or the file could not be
  // written.
  bool footer();

 private:
  void clear_progress();
  nlohmann::ordered_json timing_json(const Row& row, const Timing& timing) const;

  const Options& options_;
  int ranks_;
  bool terminal_;
  size_t wrong_ = 0;
  double bus_sum_ = 0;
  size_t bus_count_ = 0;
  nlohmann::ordered_json json_;
};

}  // namespace bench
