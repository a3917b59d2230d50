// Scatter and all-gather: a broadcast in which the ranks share the root's work. The vector is cut
// into a block a rank; with v = (rank - root) mod n a binomial tree scatters the blocks, v getting
// those of its subtree, v ... v + span - 1; then every rank passes round the ring, to v + 1, what
// that one does not have yet: block v first, then v - 1, v - 2, ... as they arrive. Nothing is sent
// to the root or to a rank that got it from the tree.
//
// Notation: n ranks, S bytes, c(v) children in the binomial tree.
//   the root: 1 copy, c sends of (n-1)/n S in all, n-1 sends of S/n round the ring.
//   others:   1 receive of span blocks, c(v) sends, n - span receives of S/n, each passed on in the
//   same step where v + 1 lacks it, and span blocks of its own to pass on where v + 1 lacks them.
// The root sends 2 (n-1)/n S, everybody receives S. Wins over a tree for long vectors, and over a
// chain where there are too few slices to fill one.
//
// Paper: Barnett, Gupta, Payne, Shuler, van de Geijn, Watts: Interprocessor collective
// communication library (InterCom) (1994).
#include <utility>

#include "algorithms/rows.h"
#include "algorithms/tree.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

constexpr int32_t kTree = 0, kRing = 1;  // channel numbers

void scatter(PlanBuilder* plan, const BinomialPlace& place, int8_t receive, int8_t send) {
  if (place.v == 0)
    plan->step(receive, {.sources = {plan->input(0, place.n)}, .into = plan->output(0, place.n)});
  else
    plan->step(receive, {.sources = {plan->receive(place.parent, kTree)},
                         .into = plan->output(place.v, place.span)});
  for (size_t i = place.steps.size(); i-- > 0;) {
    const int32_t child = place.v + place.steps[i], span = place.child_span(place.steps[i]);
    plan->step(send,
               {.sources = {place.v == 0 ? plan->input(child, span) : plan->output(child, span)},
                .forward = plan->to(place.rank_of(child), kTree)});
  }
}

void pass_round(PlanBuilder* plan, const BinomialPlace& place, int8_t ring) {
  const int32_t n = place.n, v = place.v;
  const int32_t own_span = place.span, next_span = binomial_place(n, (v + 1) % n, 0).span;
  for (int32_t i = 0; i < n; ++i) {
    const int32_t b = wrap(v - i, n);
    const bool has = wrap(b - v, n) < own_span;
    const bool passes = v + 1 < n && wrap(b - (v + 1), n) >= next_span;
    StepSpec step;
    if (has)
      step.sources = {v == 0 ? plan->input(b) : plan->output(b)};
    else
      step = {.sources = {plan->receive(plan->after(-1), kRing)}, .into = plan->output(b)};
    if (passes) step.forward = plan->to(plan->after(1), kRing);
    if (passes || !has) plan->step(ring, std::move(step));
  }
}

void broadcast(PlanBuilder* plan) {
  plan->pack_messages(largest_binomial_subtree(plan->n()));
  const int8_t receive = plan->lane("receive"), send = plan->lane("send"),
               ring = plan->lane("ring");
  const BinomialPlace place = binomial_place(plan->n(), plan->me(), plan->root());
  scatter(plan, place, receive, send);
  pass_round(plan, place, ring);
}

constexpr About kAbout{"scatter_allgather", "Barnett et al. 1994 (van de Geijn)", true, 9,
                       kUnmeasured};
constexpr Way kWays[] = {{Collective::kBroadcast, broadcast, block_a_rank}};

Cost cost(const PlanRequest& request) {
  const double n = request.ranks;
  return {
      .messages = ceil_log2(request.ranks) + n - 1, .wire_bytes = 2 * (n - 1) / n, .copy_bytes = 1};
}

}  // namespace

Algorithm scatter_allgather_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
