// Binary tree. Let v = (rank - root) mod n. The children of v are 2v + 1 and 2v + 2, its parent is
// (v - 1) / 2. Broadcast goes down, reduce goes up, each inner rank folding its own input and both
// partial results in one step; all-reduce and barrier are the one to rank 0, then the other. No
// rank sends a slice more than twice, so slices follow each other twice as close as a binomial tree
// of 16 ranks lets them; half of the ranks only send or only receive (double_binary_tree mends
// that).
//
// Notation: n ranks, S bytes, c(v) children, 2 at most; depth floor(log2 n).
//   broadcast: 1 receive of S (not the root), c(v) sends of S (the root copies its input in the
//   first).
//   reduce:    1 step; receives c(v) S, sends S (not the root).
//   all-reduce, barrier: 1 + 1 + c(v) steps (the root no receive).
// The busiest rank moves 2 S; 3 S in an all-reduce. Wins where the vector is too long for the
// binomial tree and the ranks are too many for a chain.
//
// Paper: Pjesivac-Grbovic, Angskun, Bosilca, Fagg, Gabriel, Dongarra: Performance analysis of MPI
// collective operations (2007).
#include <algorithm>

#include "algorithms/rows.h"
#include "algorithms/tree.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

TreePlace place_of(const PlanBuilder& plan, int32_t root) {
  const int32_t n = plan.n();
  const int32_t v = wrap(plan.me() - root, n);
  const auto rank_of = [&](int32_t relative) { return (relative + root) % n; };
  TreePlace place;
  if (v > 0) place.parent = rank_of((v - 1) / 2);
  // Sent to from the last: the first child's subtree is never the smaller one.
  for (int64_t child : {2 * int64_t{v} + 2, 2 * int64_t{v} + 1})
    if (child < n) place.children.push_back(rank_of(static_cast<int32_t>(child)));
  return place;
}

void broadcast(PlanBuilder* plan) {
  broadcast_on_tree(plan, place_of(*plan, plan->root()));
}

void reduce(PlanBuilder* plan) {
  reduce_on_tree(plan, place_of(*plan, plan->root()));
}

void all_reduce(PlanBuilder* plan) {
  all_reduce_on_tree(plan, place_of(*plan, 0));
}

constexpr About kAbout{"binary_tree", "Pjesivac-Grbovic et al. 2007", true, 9, kUnmeasured};
constexpr Way kWays[] = {{Collective::kAllReduce, all_reduce},
                         {Collective::kBarrier, all_reduce},
                         {Collective::kReduce, reduce},
                         {Collective::kBroadcast, broadcast}};

Cost cost(const PlanRequest& request) {
  // Start-ups one port a rank: a level takes two.
  const double up = 2 * floor_log2(request.ranks);
  const double children = std::min(request.ranks - 1, 2);
  // An inner rank with a parent: from 4 ranks on one with one child, from 5 on one with two.
  const double inner = request.ranks > 4 ? 3 : 2;
  switch (request.collective) {
    case Collective::kBroadcast:
      return {.messages = up, .wire_bytes = children, .copy_bytes = 1};
    case Collective::kReduce:
      return {.messages = up,
              .wire_bytes = children,
              .reduce_bytes = children + 1,
              .total_bytes = 3.0 * (request.ranks - 1)};
    default:
      return {.messages = 2 * up,
              .wire_bytes = request.ranks > 2 ? inner : 1,
              .reduce_bytes = children + 1};
  }
}

}  // namespace

Algorithm binary_tree_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
