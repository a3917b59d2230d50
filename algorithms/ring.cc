// Ring: every rank receives from its left neighbour (rank - 1) and sends to its right (rank + 1),
// so that each byte crosses each link the least number of times. Reduce-scatter: block c starts at
// rank c + 1 and travels right, each rank adding its own input, until its owner c has the sum.
// All-gather: each owner's block travels right once around. All-reduce is the one after the other,
// in two lanes, so that a slice's all-gather overlaps the next slice's reduce-scatter.
//
// Notation: n ranks, S bytes of the collective (all n blocks for all-gather and reduce-scatter).
//   all-reduce:     2n steps; sends and receives 2 (n-1)/n S, the least possible.
//   reduce-scatter, all-gather: n steps; (n-1)/n S.
// A partial sum is rounded at each hop. Wins where bytes count and n is small against S.
//
// Paper: Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations
// (2009).
#include "algorithms/ring_steps.h"
#include "algorithms/rows.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

constexpr int32_t kPartials = 0, kResults = 1;  // channel numbers

void reduce_scatter_to(PlanBuilder* plan, int8_t lane, Chunk sum) {
  ring_reduce_scatter(
      plan, lane, ring_of_all(*plan, kPartials), [&](int32_t b) { return plan->input(b); }, sum);
}

void reduce_scatter(PlanBuilder* plan) {
  reduce_scatter_to(plan, plan->lane("reduce-scatter"), plan->output(0));
}

void all_gather(PlanBuilder* plan) {
  ring_all_gather(plan, plan->lane("all-gather"), ring_of_all(*plan, kResults),
                  {.sources = {plan->input(0)}, .into = plan->output(plan->me())});
}

void all_reduce(PlanBuilder* plan) {
  const int8_t reduce = plan->lane("reduce-scatter"), gather = plan->lane("all-gather");
  const Chunk own = plan->output(plan->me());
  reduce_scatter_to(plan, reduce, own);
  ring_all_gather(plan, gather, ring_of_all(*plan, kResults), {.sources = {own}});
}

constexpr About kAbout{"ring", "Patarasuk, Yuan 2009"};
constexpr Way kWays[] = {{Collective::kAllReduce, all_reduce, block_a_rank},
                         {Collective::kReduceScatter, reduce_scatter},
                         {Collective::kAllGather, all_gather}};

Cost cost(const PlanRequest& request) {
  const double n = request.ranks;
  const double share = (n - 1) / n;
  switch (request.collective) {
    case Collective::kAllReduce:
      return {.messages = 2 * (n - 1), .wire_bytes = 2 * share, .reduce_bytes = 2 * share};
    case Collective::kReduceScatter:
      return {.messages = n - 1, .wire_bytes = share, .reduce_bytes = 2 * share};
    default:
      return {.messages = n - 1, .wire_bytes = share, .copy_bytes = 1 / n};
  }
}

}  // namespace

Algorithm ring_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
