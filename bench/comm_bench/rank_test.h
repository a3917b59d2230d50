// Mann-Whitney U: do two samples come from one distribution? It asks for no shape of noise, and one
// wild batch does not sway it.
#pragma once

#include <vector>

namespace bench {

struct RankTest {
  double u = 0;        // pairs in which a is larger, ties half
  double p = 1;        // two-sided
  double least_p = 1;  // that samples of these sizes could give: of full separation
};

// Exact (over all ways to deal the ranks, ties as they are) up to 60 values in all, else the normal
// approximation with corrections for ties and continuity. p is 1 if a sample is empty.
RankTest rank_test(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace bench
