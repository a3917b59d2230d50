// H. B. Mann, D. R. Whitney, On a test of whether one of two random variables is stochastically
// larger than the other, Ann. Math. Statist. 18 (1947).
#include "bench/comm_bench/rank_test.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace bench {
namespace {

constexpr size_t kExactMost = 60;

struct Ranking {
  std::vector<size_t> twice;  // twice the mean rank of each value in order: whole even with ties
  size_t twice_sum_a = 0;
  double ties = 0;  // sum of t^3 - t over groups of equal values
};

Ranking rank_all(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<std::pair<double, bool>> values;  // value, of a
  for (const double v : a) values.emplace_back(v, true);
  for (const double v : b) values.emplace_back(v, false);
  std::sort(values.begin(), values.end());
  Ranking ranking;
  for (size_t begin = 0, end = 0; begin < values.size(); begin = end) {
    while (end < values.size() && values[end].first == values[begin].first) end++;
    const size_t twice = begin + 1 + end;  // ranks begin+1 .. end
    for (size_t i = begin; i < end; i++) {
      ranking.twice.push_back(twice);
      if (values[i].second) ranking.twice_sum_a += twice;
    }
    const auto t = static_cast<double>(end - begin);
    ranking.ties += t * t * t - t;
  }
  return ranking;
}

// The share of all choices of `size` ranks whose sum is as far from the mean as sum_a or farther.
double exact_p(const Ranking& ranking, size_t size) {
  const size_t n = ranking.twice.size();
  size_t most = 0;
  for (const size_t r : ranking.twice) most += r;
  // ways[k][s]: subsets of k ranks with doubled sum s, of those seen so far.
  std::vector<std::vector<double>> ways(size + 1, std::vector<double>(most + 1, 0));
  ways[0][0] = 1;
  for (const size_t r : ranking.twice) {
    for (size_t k = size; k >= 1; k--) {
      for (size_t s = most; s >= r; s--) ways[k][s] += ways[k - 1][s - r];
    }
  }
  const auto mean = static_cast<double>(size * (n + 1));  // doubled
  const double distance = std::fabs(static_cast<double>(ranking.twice_sum_a) - mean);
  double extreme = 0, all = 0;
  for (size_t s = 0; s <= most; s++) {
    all += ways[size][s];
    if (std::fabs(static_cast<double>(s) - mean) >= distance - 1e-9) extreme += ways[size][s];
  }
  return std::min(1.0, extreme / all);
}

double normal_p(const Ranking& ranking, double u, double na, double nb) {
  const double n = na + nb;
  const double variance = na * nb / 12 * (n + 1 - ranking.ties / (n * (n - 1)));
  if (variance <= 0) return 1;
  const double z = std::max(0.0, std::fabs(u - na * nb / 2) - 0.5) / std::sqrt(variance);
  return std::erfc(z / std::sqrt(2.0));
}

double choices(size_t n, size_t k) {
  double ways = 1;
  for (size_t i = 1; i <= k; i++)
    ways = ways * static_cast<double>(n - k + i) / static_cast<double>(i);
  return ways;
}

}  // namespace

RankTest rank_test(const std::vector<double>& a, const std::vector<double>& b) {
  RankTest result;
  if (a.empty() || b.empty()) return result;
  const Ranking ranking = rank_all(a, b);
  const auto na = static_cast<double>(a.size()), nb = static_cast<double>(b.size());
  result.u = static_cast<double>(ranking.twice_sum_a) / 2 - na * (na + 1) / 2;
  result.least_p = std::min(1.0, 2 / choices(a.size() + b.size(), a.size()));
  result.p = a.size() + b.size() <= kExactMost ? exact_p(ranking, a.size())
                                               : normal_p(ranking, result.u, na, nb);
  return result;
}

}  // namespace bench
