// Recursive doubling. Let p be the largest power of two <= n and e = n - p the excess. Of the first
// 2e ranks each even one takes its odd neighbour's part too, and the odd one waits for the result;
// that leaves p members, numbered m in rank order. In phase j member m exchanges its whole partial
// result with member m XOR 2^j and both fold the two, the lower ranks' first, so that all members
// compute the same expression, hence the same bits. log2 p phases: the fewest meetings that an
// all-reduce can do with two operands a step. Folding and sending the result on to the next partner
// are one step. All-gather (powers of two): in phase j the 2^j blocks gathered so far are
// exchanged.
//
// Notation: n ranks, S bytes of the collective (all n blocks for all-gather).
//   all-reduce, barrier: a member without excess neighbour: 1 + log2 p steps, sends and receives S
//   log2 p; with one: one more
//     step, S more each way. An excess rank: 2 steps, S each way.
//   all-gather: 2 log2 n steps, (n-1)/n S.
//
// All-reduce is not for late mode: partners would wait for each other before overwriting what they
// exchange. Paper: Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations
// in MPICH (2005).
#include <algorithm>

#include "algorithms/builder.h"
#include "algorithms/rows.h"

namespace unisono {
namespace {

constexpr const char* kName = "recursive_doubling";

int32_t power_of_two_below(int32_t n) {
  int32_t p = 1;
  while (p <= n / 2) p *= 2;
  return p;
}

int32_t rank_of_member(int32_t member, int32_t excess) {
  return member < excess ? 2 * member : member + excess;
}

void doubling_all_reduce(PlanBuilder* plan) {
  const int8_t exchange = plan->lane("exchange");
  const int32_t p = power_of_two_below(plan->n());
  const int32_t excess = plan->n() - p;
  const int32_t me = plan->me();
  const bool paired = me < 2 * excess;
  if (paired && me % 2 == 1) {
    plan->step(exchange, {.sources = {plan->input(0)}, .forward = plan->to(me - 1)});
    plan->step(exchange, {.sources = {plan->receive(me - 1)}, .into = plan->output(0)});
    return;
  }
  const int32_t member = paired ? me / 2 : me - excess;
  const auto partner = [&](int32_t distance) { return rank_of_member(member ^ distance, excess); };

  // What this member holds: its input, at first; each fold goes to the output and on to the next
  // partner.
  Chunk held = plan->input(0);
  if (paired) {
    plan->step(exchange, {.sources = {held, plan->receive(me + 1)},
                          .into = plan->output(0),
                          .forward = plan->to(partner(1))});
    held = plan->output(0);
  } else {
    plan->step(exchange, {.sources = {held}, .forward = plan->to(partner(1))});
  }
  for (int32_t distance = 1; distance < p; distance *= 2) {
    const int32_t peer = partner(distance);
    StepSpec fold{.into = plan->output(0)};
    if (peer < me)
      fold.sources = {plan->receive(peer), held};
    else
      fold.sources = {held, plan->receive(peer)};
    fold.final = distance * 2 == p;
    if (!fold.final)
      fold.forward = plan->to(partner(distance * 2));
    else if (paired)
      fold.forward = plan->to(me + 1);
    plan->step(exchange, std::move(fold));
    held = plan->output(0);
  }
}

void doubling_all_gather(PlanBuilder* plan) {
  const int8_t exchange = plan->lane("exchange");
  const int32_t me = plan->me();
  plan->pack_messages(plan->n() / 2);
  for (int32_t distance = 1; distance < plan->n(); distance *= 2) {
    const int32_t peer = me ^ distance;
    const int32_t mine = me & -distance, theirs = peer & -distance;  // first blocks of the groups
    if (distance == 1)
      plan->step(
          exchange,
          {.sources = {plan->input(0)}, .into = plan->output(me), .forward = plan->to(peer)});
    else
      plan->step(exchange, {.sources = {plan->output(mine, distance)}, .forward = plan->to(peer)});
    plan->step(exchange,
               {.sources = {plan->receive(peer)}, .into = plan->output(theirs, distance)});
  }
}

bool supports(const PlanRequest& request) {
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kBarrier:
      return true;
    case Collective::kAllGather:
      return power_of_two_below(request.ranks) == request.ranks;
    default:
      return false;
  }
}

Plan build(const PlanRequest& request) {
  const bool gathers = request.collective == Collective::kAllGather;
  if (request.ranks == 1) return copy_plan(kName, request, gathers, false);
  PlanBuilder plan(kName, request);
  if (gathers)
    doubling_all_gather(&plan);
  else
    doubling_all_reduce(&plan);
  return plan.finish(gathers, false);
}

Cost cost(const PlanRequest& request) {
  if (request.ranks == 1) return {.copy_bytes = 1};
  const double n = request.ranks;
  const int32_t p = power_of_two_below(request.ranks);
  double phases = 0;
  for (int32_t distance = 1; distance < p; distance *= 2) ++phases;
  if (request.collective == Collective::kAllGather)
    return {.messages = phases, .wire_bytes = (n - 1) / n, .copy_bytes = 1 / n};
  const double excess_phases = p == request.ranks ? 0 : 2;
  return {.messages = phases + excess_phases,
          .wire_bytes = phases + excess_phases,
          .reduce_bytes = 2 * (phases + excess_phases / 2)};
}

}  // namespace

Algorithm recursive_doubling_row() {
  return {.name = kName,
          .paper = "Thakur, Rabenseifner, Gropp 2005 (recursive doubling)",
          .reproducible = false,
          .late = false,
          .pipelines = false,
          .supports = supports,
          .build = build,
          .cost = cost};
}

}  // namespace unisono
