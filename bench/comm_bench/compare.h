// Which rows of two result files differ.
#pragma once

#include <string>
#include <vector>

#include "bench/comm_bench/json.h"

namespace bench {

// Of the rows that are said to differ, the share that chance made: at most this, on average. Where
// nothing differs, as many comparisons say that something does.
inline constexpr double kFalseRate = 0.05;

struct RowDifference {
  std::string row;                               // "1024 float sum root -1 out_of_place"
  double median_a = 0, median_b = 0, ratio = 0;  // microseconds; ratio is b over a
  double u = 0, p = 1;
  double least_p = 1;  // what these numbers of batches could give at best
  enum Verdict { kSame, kFaster, kSlower, kTooFew } verdict = kSame;  // of b against a
};

struct Comparison {
  std::string problem;  // why they cannot be compared, with file and key; empty if they were
  std::vector<RowDifference> rows;
  std::vector<std::string> only_a, only_b;  // rows that one file lacks
};

// Pure. name_a and name_b are for messages.
Comparison compare(const Json& a, const Json& b, const std::string& name_a,
                   const std::string& name_b);
// Reads two files of -J, prints a line for each row. Exit status: 0 no row differs, 1 some do, 2 a
// file cannot be read or they cannot be compared.
int compare_files(const std::string& name_a, const std::string& name_b);

}  // namespace bench
