// Ring: every rank receives from its left neighbour (rank - 1) and sends to its right (rank + 1),
// so that each byte crosses each link the least number of times. Reduce-scatter: block c starts at
// rank c + 1 and travels right, each rank adding its own input, until its owner c has the sum.
// All-gather: each owner's block travels right once around. All-reduce is the one after the other,
// in two lanes, so that a slice's all-gather overlaps the next slice's reduce-scatter. Broadcast
// and reduce cut the ring at the root: a chain, that pipelines slice after slice.
//
// Notation: n ranks, S bytes of the collective (all n blocks for all-gather and reduce-scatter).
//   all-reduce:     2n steps; sends and receives 2 (n-1)/n S, the least possible.
//   reduce-scatter, all-gather: n steps; (n-1)/n S.
//   broadcast, reduce: 1 step a rank; each but the last of the chain sends S.
// A partial sum is rounded at each hop.
//
// Paper: Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations
// (2009).
#include "algorithms/builder.h"
#include "algorithms/rows.h"

namespace unisono {
namespace {

constexpr const char* kName = "ring";
constexpr int32_t kPartials = 0, kResults = 1;  // channel numbers

// n steps; the own block's sum ends in `sum`.
void ring_reduce_scatter(PlanBuilder* plan, int8_t lane, Chunk sum) {
  const int32_t left = plan->after(-1), right = plan->after(1);
  plan->step(lane,
             {.sources = {plan->input(plan->me() - 1)}, .forward = plan->to(right, kPartials)});
  plan->repeat(plan->n() - 2, [&](int32_t i) {
    plan->step(lane, {.sources = {plan->receive(left, kPartials), plan->input(plan->me() - 2 - i)},
                      .forward = plan->to(right, kPartials)});
  });
  plan->step(lane, {.sources = {plan->receive(left, kPartials), plan->input(plan->me())},
                    .into = sum,
                    .final = true});
}

// n steps; starts from `own`, which is output block `me` itself in an all-reduce.
void ring_all_gather(PlanBuilder* plan, int8_t lane, StepSpec own) {
  const int32_t left = plan->after(-1), right = plan->after(1);
  own.forward = plan->to(right, kResults);
  plan->step(lane, std::move(own));
  plan->repeat(plan->n() - 2, [&](int32_t i) {
    plan->step(lane, {.sources = {plan->receive(left, kResults)},
                      .into = plan->output(plan->me() - 1 - i),
                      .forward = plan->to(right, kResults)});
  });
  plan->step(lane,
             {.sources = {plan->receive(left, kResults)}, .into = plan->output(plan->me() + 1)});
}

void ring_all_reduce(PlanBuilder* plan) {
  const int8_t reduce = plan->lane("reduce-scatter"), gather = plan->lane("all-gather");
  const Chunk own = plan->output(plan->me());
  ring_reduce_scatter(plan, reduce, own);
  ring_all_gather(plan, gather, {.sources = {own}});
}

// The chain root, root + 1, ..., root - 1.
void chain_broadcast(PlanBuilder* plan) {
  const int8_t chain = plan->lane("chain");
  const bool is_last = plan->after(1) == plan->root();
  StepSpec relay{.into = plan->output(0)};
  if (plan->is_root())
    relay.sources.push_back(plan->input(0));
  else
    relay.sources.push_back(plan->receive(plan->after(-1)));
  if (!is_last) relay.forward = plan->to(plan->after(1));
  plan->step(chain, std::move(relay));
}

// The chain root + 1, root + 2, ..., root.
void chain_reduce(PlanBuilder* plan) {
  const int8_t chain = plan->lane("chain");
  const bool is_first = plan->after(-1) == plan->root();
  StepSpec add;
  if (!is_first || plan->is_root()) add.sources.push_back(plan->receive(plan->after(-1)));
  add.sources.push_back(plan->input(0));
  if (plan->is_root()) {
    add.into = plan->output(0);
    add.final = true;
  } else {
    add.forward = plan->to(plan->after(1));
  }
  plan->step(chain, std::move(add));
}

bool supports(const PlanRequest& request) {
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kBroadcast:
    case Collective::kReduce:
      return true;
    default:
      return false;
  }
}

Plan build(const PlanRequest& request) {
  if (request.ranks == 1) return copy_plan(kName, request, true, false);
  const bool all_reduce = request.collective == Collective::kAllReduce;
  PlanBuilder plan(kName, request, all_reduce ? request.ranks : 1);
  switch (request.collective) {
    case Collective::kAllReduce:
      ring_all_reduce(&plan);
      break;
    case Collective::kReduceScatter:
      ring_reduce_scatter(&plan, plan.lane("reduce-scatter"), plan.output(0));
      break;
    case Collective::kAllGather:
      ring_all_gather(&plan, plan.lane("all-gather"),
                      {.sources = {plan.input(0)}, .into = plan.output(plan.me())});
      break;
    case Collective::kBroadcast:
      chain_broadcast(&plan);
      break;
    case Collective::kReduce:
      chain_reduce(&plan);
      break;
    default:
      CHECK(supports(request));
  }
  return plan.finish(true, false);
}

Cost cost(const PlanRequest& request) {
  if (request.ranks == 1) return {.copy_bytes = 1};
  const double n = request.ranks;
  const double share = (n - 1) / n;
  switch (request.collective) {
    case Collective::kAllReduce:
      return {.messages = 2 * (n - 1), .wire_bytes = 2 * share, .reduce_bytes = 2 * share};
    case Collective::kReduceScatter:
      return {.messages = n - 1, .wire_bytes = share, .reduce_bytes = 2 * share};
    case Collective::kAllGather:
      return {.messages = n - 1, .wire_bytes = share, .copy_bytes = 1 / n};
    case Collective::kBroadcast:
      return {.messages = n - 1, .wire_bytes = 1, .copy_bytes = 1};
    default:
      return {.messages = n - 1, .wire_bytes = 1, .reduce_bytes = 2};
  }
}

}  // namespace

Algorithm ring_row() {
  return {.name = kName,
          .paper = "Patarasuk, Yuan 2009",
          .reproducible = false,
          .late = true,
          .pipelines = true,
          .supports = supports,
          .build = build,
          .cost = cost};
}

}  // namespace unisono
