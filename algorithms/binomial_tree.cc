// Binomial tree over v = (rank - root) mod n (tree.h). Broadcast goes down, largest subtree first;
// reduce goes up, each rank folding its own input and all its children's partial results in one
// step; all-reduce and barrier are the one to rank 0, then the other. Gather and scatter carry the
// subtree's blocks in one message, so that the root handles log2 n messages instead of n-1.
// Receiving and sending have lanes of their own: else a root's log2 n sends a slice would hold up
// its children's (31 ranks, 64 slices: 1152 units against 334).
//
// Notation: n ranks, S bytes of the collective, c(v) children, ceil(log2 n) at the root.
//   broadcast: 1 receive of S (not the root), c(v) sends of S (the root copies its input in the
//   first).
//   reduce:    1 step; receives c(v) S, sends S (not the root).
//   all-reduce, barrier: 1 + 1 + c(v) steps (the root no receive).
//   gather:    inner rank: 1 copy, c(v) receives, 1 send of its span blocks of S/n; leaf: 1 send;
//   root: 1 + c(v) steps.
//   scatter:   inner rank: 1 receive of span blocks, 1 copy, c(v) sends; leaf: 1 receive; root: 1 +
//   c(v) steps.
// Wins for short vectors: the fewest start-ups one after the other.
//
// Paper: Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH
// (2005).
#include "algorithms/rows.h"
#include "algorithms/tree.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

constexpr int32_t kChannel = 0;

BinomialPlace place_of(const PlanBuilder& plan, int32_t root) {
  return binomial_place(plan.n(), plan.me(), root);
}

void broadcast(PlanBuilder* plan) {
  broadcast_on_tree(plan, place_of(*plan, plan->root()).in_tree());
}

void reduce(PlanBuilder* plan) {
  reduce_on_tree(plan, place_of(*plan, plan->root()).in_tree());
}

void all_reduce(PlanBuilder* plan) {
  all_reduce_on_tree(plan, place_of(*plan, 0).in_tree());
}

void gather(PlanBuilder* plan) {
  plan->pack_messages(largest_binomial_subtree(plan->n()));
  const int8_t receive = plan->lane("receive"), send = plan->lane("send");
  const BinomialPlace place = place_of(*plan, plan->root());
  if (place.parent >= 0 && place.is_leaf()) {
    plan->step(send, {.sources = {plan->input(0)}, .forward = plan->to(place.parent, kChannel)});
    return;
  }
  // The subtree's blocks, relative to the own one: in the output at the root, in scratch elsewhere.
  const auto blocks = [&](int32_t first, int32_t count) {
    return plan->is_root() ? plan->output(plan->me() + first, count)
                           : PlanBuilder::scratch(receive, first, count);
  };
  plan->step(receive, {.sources = {plan->input(0)}, .into = blocks(0, 1)});
  for (int32_t step : place.steps)
    plan->step(receive, {.sources = {plan->receive(place.child(step), kChannel)},
                         .into = blocks(step, place.child_span(step)),
                         .length = plan->length(plan->me() + step, place.child_span(step))});
  if (place.parent >= 0)
    plan->step(send, {.sources = {blocks(0, place.span)},
                      .forward = plan->to(place.parent, kChannel),
                      .length = plan->length(plan->me(), place.span)});
}

void scatter(PlanBuilder* plan) {
  plan->pack_messages(largest_binomial_subtree(plan->n()));
  const int8_t receive = plan->lane("receive"), send = plan->lane("send");
  const BinomialPlace place = place_of(*plan, plan->root());
  if (place.parent >= 0 && place.is_leaf()) {
    plan->step(receive,
               {.sources = {plan->receive(place.parent, kChannel)}, .into = plan->output(0)});
    return;
  }
  const auto blocks = [&](int32_t first, int32_t count) {
    return plan->is_root() ? plan->input(plan->me() + first, count)
                           : PlanBuilder::scratch(receive, first, count);
  };
  if (place.parent >= 0)
    plan->step(receive, {.sources = {plan->receive(place.parent, kChannel)},
                         .into = blocks(0, place.span),
                         .length = plan->length(plan->me(), place.span)});
  for (size_t i = place.steps.size(); i-- > 0;)
    plan->step(send, {.sources = {blocks(place.steps[i], place.child_span(place.steps[i]))},
                      .forward = plan->to(place.child(place.steps[i]), kChannel),
                      .length = plan->length(plan->me() + place.steps[i],
                                             place.child_span(place.steps[i]))});
  plan->step(receive, {.sources = {blocks(0, 1)}, .into = plan->output(0)});
}

constexpr About kAbout{"binomial_tree", "Thakur, Rabenseifner, Gropp 2005 (binomial tree)"};
constexpr Way kWays[] = {
    {Collective::kAllReduce, all_reduce}, {Collective::kBarrier, all_reduce},
    {Collective::kReduce, reduce},        {Collective::kBroadcast, broadcast},
    {Collective::kGather, gather},        {Collective::kScatter, scatter},
};

Cost cost(const PlanRequest& request) {
  const double n = request.ranks;
  const double depth = ceil_log2(request.ranks);
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kBarrier:
      return {.messages = 2 * depth, .wire_bytes = depth, .reduce_bytes = depth + 1};
    case Collective::kReduce:
      return {.messages = depth,
              .wire_bytes = depth,
              .reduce_bytes = depth + 1,
              .total_bytes = 3 * (n - 1)};
    case Collective::kBroadcast:
      return {.messages = depth, .wire_bytes = depth, .copy_bytes = 1};
    default:
      // The root's bytes, and the relays' copies through scratch.
      return {.messages = depth, .wire_bytes = (n - 1) / n, .copy_bytes = 0.5 + 1 / n};
  }
}

}  // namespace

Algorithm binomial_tree_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
