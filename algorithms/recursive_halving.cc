// Recursive halving and doubling, between the p members of a power of two (members.h says what the
// excess e = n - p ranks do). Halving: in phase 1 member m exchanges with member m XOR p/2 the half
// of its vector that the other one will own, and folds what it gets into the half that it keeps;
// then quarters with m XOR p/4, and so on, until it owns one block. Doubling sends the blocks back
// the same way. Reduce-scatter is halving; all-reduce is halving, then doubling, in two lanes;
// reduce is halving, then a binomial gather to the root. Every block's sum is computed once.
//
// Notation: n ranks, S bytes (all n blocks for reduce-scatter), L = log2 p.
//   all-reduce: a member 4 L steps, sends and receives 2 (p-1)/p S; with an excess neighbour 2
//   steps more and S more each way. An excess rank: 2 steps, S each way. reduce: a member 2 L steps
//   and its part of the gather: sends and receives at most 2 (p-1)/p S; with an excess neighbour 1
//   step and S received more. An excess rank: 1 step, sends S. reduce-scatter (into scratch: the
//   input stays): a member 2 L steps, (p-1)/p S; with an excess neighbour it keeps two blocks to
//   the end: 3 steps and about 2 S.
// Wins for middling and long vectors on powers of two: a ring's bytes in log2 n meetings. On other
// counts pat (reduce-scatter) and circulant (all-reduce) have no excess to carry.
//
// Paper: Rabenseifner: Optimization of Collective Reduction Operations (2004); Thakur,
// Rabenseifner, Gropp (2005).
#include <utility>

#include "algorithms/members.h"
#include "algorithms/rows.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

constexpr int32_t kHalving = 0, kDoubling = 1;  // channel numbers

int32_t block_a_member(const PlanRequest& request) {
  return power_of_two_below(request.ranks);
}

// Blocks [first, first + count) of what this rank holds, and the same blocks of where its sums go.
using Blocks = Chunk (*)(const PlanBuilder&, int8_t lane, int32_t first, int32_t count);

Chunk in_input(const PlanBuilder& plan, int8_t, int32_t first, int32_t count) {
  return plan.input(first, count);
}
Chunk in_output(const PlanBuilder& plan, int8_t, int32_t first, int32_t count) {
  return plan.output(first, count);
}
Chunk in_scratch(const PlanBuilder&, int8_t lane, int32_t first, int32_t count) {
  return PlanBuilder::scratch(lane, first, count);
}

// The range of blocks that a group of members owns together: one block a member, or one a rank.
struct Halving {
  Members members;
  bool block_a_rank = false;
  Blocks sums = in_output;

  int32_t begin(int32_t m) const { return block_a_rank ? members.first(m) : m; }
  int32_t all() const { return begin(members.p); }
};

// Members only. Sums end in `sums`; the last fold goes to `last` instead, if given.
void halve(PlanBuilder* plan, int8_t lane, const Halving& halving, std::optional<Chunk> last) {
  const Members& members = halving.members;
  const int32_t m = members.member();
  Blocks held = in_input;
  const auto fold = [&](int32_t peer, int32_t first, int32_t count, bool final) {
    StepSpec step{.sources = {held(*plan, lane, first, count), plan->receive(peer, kHalving)},
                  .into = halving.sums(*plan, lane, first, count),
                  .final = final,
                  .length = plan->length(first, count)};
    if (final && last) step.into = last;
    plan->step(lane, std::move(step));
  };
  if (members.is_paired()) {
    fold(members.neighbour(), 0, halving.all(), false);
    held = halving.sums;
  }
  for (int32_t distance = members.p / 2; distance > 0; distance /= 2) {
    const int32_t lower = m & -(2 * distance), upper = lower + distance;
    const int32_t begin = halving.begin(lower), middle = halving.begin(upper);
    const int32_t end = halving.begin(upper + distance);
    const bool keeps_lower = m < upper;
    const int32_t sent = keeps_lower ? middle : begin, kept = keeps_lower ? begin : middle;
    const int32_t peer = members.partner(distance);
    const int32_t sent_count = keeps_lower ? end - middle : middle - begin;
    plan->step(lane, {.sources = {held(*plan, lane, sent, sent_count)},
                      .forward = plan->to(peer, kHalving),
                      .length = plan->length(sent, sent_count)});
    fold(peer, kept, end - begin - sent_count, distance == 1);
    held = halving.sums;
  }
}

void hand_in(PlanBuilder* plan, int8_t lane, const Halving& halving) {
  plan->step(lane, {.sources = {plan->input(0, halving.all())},
                    .forward = plan->to(halving.members.neighbour(), kHalving)});
}

// The most blocks of a message: an excess rank's whole vector, or the first half.
int32_t longest_message(const Halving& halving) {
  return halving.members.excess > 0 ? halving.all() : halving.all() / 2;
}

void all_reduce(PlanBuilder* plan) {
  const int8_t halves = plan->lane("halving"), doubles = plan->lane("doubling");
  const Halving halving{.members = Members(plan->n(), plan->me(), 0)};
  const Members& members = halving.members;
  plan->pack_messages(longest_message(halving));
  const Chunk all = plan->output(0, members.p);
  if (!members.is_member()) {
    hand_in(plan, halves, halving);
    plan->step(doubles, {.sources = {plan->receive(members.neighbour(), kDoubling)}, .into = all});
    return;
  }
  halve(plan, halves, halving, std::nullopt);
  const int32_t m = members.member();
  for (int32_t distance = 1; distance < members.p; distance *= 2) {
    const int32_t mine = m & -distance, peer = members.partner(distance);
    plan->step(doubles,
               {.sources = {plan->output(mine, distance)}, .forward = plan->to(peer, kDoubling)});
    plan->step(doubles, {.sources = {plan->receive(peer, kDoubling)},
                         .into = plan->output(mine ^ distance, distance)});
  }
  if (members.is_paired())
    plan->step(doubles, {.sources = {all}, .forward = plan->to(members.neighbour(), kDoubling)});
}

void reduce(PlanBuilder* plan) {
  const int8_t halves = plan->lane("halving"), gathers = plan->lane("gather");
  const Halving halving{.members = Members(*plan),
                        .sums = plan->is_root() ? in_output : in_scratch};
  const Members& members = halving.members;
  plan->pack_messages(longest_message(halving));
  if (!members.is_member()) return hand_in(plan, halves, halving);
  halve(plan, halves, halving, std::nullopt);
  const auto sums = [&](int32_t first, int32_t count) {
    return halving.sums(*plan, halves, first, count);
  };
  const int32_t m = members.member();
  for (int32_t distance = 1; distance < members.p; distance *= 2) {
    const int32_t peer = members.partner(distance);
    if ((m & distance) != 0) {
      plan->step(gathers, {.sources = {sums(m, distance)},
                           .forward = plan->to(peer, kDoubling),
                           .length = plan->length(m, distance)});
      return;
    }
    plan->step(gathers, {.sources = {plan->receive(peer, kDoubling)},
                         .into = sums(m + distance, distance),
                         .length = plan->length(m + distance, distance)});
  }
}

void reduce_scatter(PlanBuilder* plan) {
  const int8_t halves = plan->lane("halving"), hands_out = plan->lane("hand-out");
  const Halving halving{
      .members = Members(plan->n(), plan->me(), 0), .block_a_rank = true, .sums = in_scratch};
  const Members& members = halving.members;
  plan->pack_messages(longest_message(halving));
  if (!members.is_member()) {
    hand_in(plan, halves, halving);
    plan->step(hands_out, {.sources = {plan->receive(members.neighbour(), kDoubling)},
                           .into = plan->output(0)});
    return;
  }
  if (!members.is_paired()) return halve(plan, halves, halving, plan->output(0));
  halve(plan, halves, halving, std::nullopt);
  plan->step(hands_out, {.sources = {PlanBuilder::scratch(halves, plan->me() + 1)},
                         .forward = plan->to(members.neighbour(), kDoubling),
                         .length = plan->length(plan->me() + 1)});
  plan->step(hands_out,
             {.sources = {PlanBuilder::scratch(halves, plan->me())}, .into = plan->output(0)});
}

constexpr About kAbout{"recursive_halving", "Rabenseifner 2004; Thakur et al. 2005", true, 9,
                       kUnmeasured};
constexpr Way kWays[] = {{Collective::kAllReduce, all_reduce, block_a_member},
                         {Collective::kReduce, reduce, block_a_member},
                         {Collective::kReduceScatter, reduce_scatter}};

Cost cost(const PlanRequest& request) {
  const Members members(request.ranks, 0, 0);  // the busiest
  const double p = members.p, n = request.ranks;
  const double phases = floor_log2(request.ranks);
  const double share = (p - 1) / p;
  const double excess = members.excess > 0 ? 1 : 0;
  switch (request.collective) {
    case Collective::kAllReduce:
      return {.messages = 2 * (phases + excess),
              .wire_bytes = 2 * share + excess,
              .reduce_bytes = 2 * (share + excess)};
    case Collective::kReduce:
      return {.messages = 2 * phases + excess,
              .wire_bytes = 2 * share + excess,
              .reduce_bytes = 2 * (share + excess)};
    default: {
      double kept = 0;
      for (int32_t m = 1; m < members.p; m *= 2) kept += members.first(m);
      const double received = excess + kept / n;
      return {.messages = phases + 2 * excess,
              .wire_bytes = received,
              .reduce_bytes = 2 * received,
              .copy_bytes = excess / n};
    }
  }
}

}  // namespace

Algorithm recursive_halving_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
