// Pairwise exchange. In step s = 1 ... n-1 every rank sends to rank + s and receives from rank - s,
// so that each step is a permutation: no rank is anybody else's second receiver. All-to-all sends
// block `to` straight to its reader; reduce-scatter adds what arrives to the output. Sends and
// receives have lanes of their own: a slow peer's step holds up no send.
//
// Notation: n ranks, S bytes of the collective (all n blocks).
//   all-to-all:     n-1 sends, 1 copy of the own block, n-1 receives; sends and receives (n-1)/n S.
//   reduce-scatter: n-1 sends, n-1 folds; sends and receives (n-1)/n S. A partial sum is rounded at
//   each fold.
// Wins for long blocks: every byte moves once.
//
// Paper: Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH
// (2005).
#include "algorithms/rows.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

void pairwise_all_to_all(PlanBuilder* plan) {
  const int8_t send = plan->lane("send"), receive = plan->lane("receive");
  plan->step(receive, {.sources = {plan->input(plan->me())}, .into = plan->output(plan->me())});
  plan->repeat(plan->n() - 1, [&](int32_t i) {
    const int32_t to = plan->after(1 + i), from = plan->after(-1 - i);
    plan->step(send, {.sources = {plan->input(to)}, .forward = plan->to(to)});
    plan->step(receive, {.sources = {plan->receive(from)}, .into = plan->output(from)});
  });
}

void pairwise_reduce_scatter(PlanBuilder* plan) {
  const int8_t send = plan->lane("send"), reduce = plan->lane("reduce");
  // In place the sum lies in input block `me`, which is sent to nobody.
  const Chunk sum = plan->output(0);
  Chunk held = plan->input(plan->me());
  for (int32_t s = 1; s < plan->n(); ++s) {
    const int32_t to = plan->after(s), from = plan->after(-s);
    plan->step(send, {.sources = {plan->input(to)}, .forward = plan->to(to)});
    plan->step(reduce,
               {.sources = {held, plan->receive(from)}, .into = sum, .final = s == plan->n() - 1});
    held = sum;
  }
}

constexpr About kAbout{"pairwise", "Thakur, Rabenseifner, Gropp 2005 (pairwise exchange)"};
constexpr Way kWays[] = {{Collective::kAllToAll, pairwise_all_to_all},
                         {Collective::kReduceScatter, pairwise_reduce_scatter}};

Cost cost(const PlanRequest& request) {
  const double n = request.ranks;
  const double share = (n - 1) / n;
  if (request.collective == Collective::kAllToAll)
    return {.messages = n - 1, .wire_bytes = share, .copy_bytes = 1 / n};
  return {.messages = n - 1, .wire_bytes = share, .reduce_bytes = 2 * share};
}

}  // namespace

Algorithm pairwise_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
