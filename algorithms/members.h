// Members: what algorithms that exchange with rank XOR 2^j do about rank counts that are no power
// of two. Let p be the largest power of two <= n and e = n - p the excess. Of the first 2e ranks
// each even one takes its odd neighbour's part too, and the odd one waits for the result; that
// leaves p members, numbered m in rank order. Ranks are relative to `root`, which so is member 0.
#pragma once

#include "algorithms/builder.h"
#include "algorithms/numbers.h"

namespace unisono {

struct Members {
  int32_t n = 1, root = 0;
  int32_t p = 1, excess = 0;
  int32_t v = 0;  // this rank relative to the root

  Members(int32_t ranks, int32_t rank, int32_t root_rank)
      : n(ranks),
        root(root_rank),
        p(power_of_two_below(ranks)),
        excess(ranks - p),
        v(wrap(rank - root_rank, ranks)) {}
  explicit Members(const PlanBuilder& plan) : Members(plan.n(), plan.me(), plan.root()) {}

  bool is_paired() const { return v < 2 * excess; }
  bool is_member() const { return !is_paired() || v % 2 == 0; }
  // The other one of a pair.
  int32_t neighbour() const { return rank_of(v ^ 1); }
  int32_t member() const { return is_paired() ? v / 2 : v - excess; }
  // The rank of the member at the other end of phase `distance`.
  int32_t partner(int32_t distance) const { return rank_of(first(member() ^ distance)); }
  // The relative ranks that member m speaks for are first(m) ... first(m + 1) - 1; m <= p.
  int32_t first(int32_t m) const { return m < excess ? 2 * m : m + excess; }

 private:
  int32_t rank_of(int32_t relative) const { return (relative + root) % n; }
};

}  // namespace unisono
