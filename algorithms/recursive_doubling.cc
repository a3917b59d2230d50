// Recursive doubling, between the p members of a power of two (members.h says what the excess e = n
// - p ranks do). In phase j member m exchanges its whole partial result with member m XOR 2^j and
// both fold the two, the lower ranks' first, so that all members compute the same expression, hence
// the same bits. log2 p phases: the fewest meetings that an all-reduce can do with two operands a
// step. Folding and sending the result on to the next partner are one step. All-gather (powers of
// two): in phase j the 2^j blocks gathered so far are exchanged.
//
// Notation: n ranks, S bytes of the collective (all n blocks for all-gather).
//   all-reduce, barrier: a member without excess neighbour: 1 + log2 p steps, sends and receives S
//   log2 p; with one: one more step, S more each way. An excess rank: 2 steps, S each way.
//   all-gather: 2 log2 n steps, (n-1)/n S.
// Wins for short vectors where one_shot's n-fold reading costs more than log2 n meetings.
//
// All-reduce is not for late mode: partners would wait for each other before overwriting what they
// exchange.
//
// Paper: Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH
// (2005).
#include <utility>

#include "algorithms/members.h"
#include "algorithms/rows.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

void all_reduce(PlanBuilder* plan) {
  const int8_t exchange = plan->lane("exchange");
  const Members members(plan->n(), plan->me(), 0);
  const bool paired = members.is_paired();
  const int32_t neighbour = members.neighbour();
  if (!members.is_member()) {
    plan->step(exchange, {.sources = {plan->input(0)}, .forward = plan->to(neighbour)});
    plan->step(exchange, {.sources = {plan->receive(neighbour)}, .into = plan->output(0)});
    return;
  }
  // What this member holds: its input, at first; each fold goes to the output and on to the next
  // partner.
  Chunk held = plan->input(0);
  if (paired) {
    plan->step(exchange, {.sources = {held, plan->receive(neighbour)},
                          .into = plan->output(0),
                          .forward = plan->to(members.partner(1))});
    held = plan->output(0);
  } else {
    plan->step(exchange, {.sources = {held}, .forward = plan->to(members.partner(1))});
  }
  for (int32_t distance = 1; distance < members.p; distance *= 2) {
    const int32_t peer = members.partner(distance);
    StepSpec fold{.into = plan->output(0)};
    if (peer < plan->me())
      fold.sources = {plan->receive(peer), held};
    else
      fold.sources = {held, plan->receive(peer)};
    fold.final = distance * 2 == members.p;
    if (!fold.final)
      fold.forward = plan->to(members.partner(distance * 2));
    else if (paired)
      fold.forward = plan->to(neighbour);
    plan->step(exchange, std::move(fold));
    held = plan->output(0);
  }
}

void all_gather(PlanBuilder* plan) {
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

bool is_power_of_two(const PlanRequest& request) {
  return power_of_two_below(request.ranks) == request.ranks;
}

constexpr About kAbout{"recursive_doubling",
                       "Thakur, Rabenseifner, Gropp 2005 (recursive doubling)", false};
constexpr Way kWays[] = {
    {Collective::kAllReduce, all_reduce, one_block, false},
    {Collective::kBarrier, all_reduce, one_block, false},
    {Collective::kAllGather, all_gather, one_block, true, false, is_power_of_two},
};

Cost cost(const PlanRequest& request) {
  const double n = request.ranks;
  const double phases = floor_log2(request.ranks);
  if (request.collective == Collective::kAllGather)
    return {.messages = phases, .wire_bytes = (n - 1) / n, .copy_bytes = 1 / n};
  const double excess_phases = is_power_of_two(request) ? 0 : 2;
  return {.messages = phases + excess_phases,
          .wire_bytes = phases + excess_phases,
          .reduce_bytes = 2 * (phases + excess_phases / 2)};
}

}  // namespace

Algorithm recursive_doubling_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
