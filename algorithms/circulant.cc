// Circulant: Bruck's all-gather run backwards is a reduce-scatter, for any number of ranks. All
// numbers are mod n. In the phase of distance D (the powers of two below n, falling) rank r sends
// its partial sums of the blocks r + D, r + D + 1, ... to rank r + D, which is their owner or knows
// the way, and folds into its own r, r + 1, ... what rank r - D sends; with D = 1 its own block is
// complete. The blocks of a message are consecutive, so nothing is packed. All-reduce is that,
// then Bruck's all-gather, in two lanes. Every block's sum is computed once.
//
// Notation: n ranks, S bytes (all n blocks for reduce-scatter), L = ceil(log2 n). Where n is no
// power of two, 1 copy takes over blocks that the first phase does not touch.
//   reduce-scatter: 2 L steps; sends and receives (n-1)/n S, the least possible.
//   all-reduce:     4 L steps; 2 (n-1)/n S, the least possible.
// Wins for middling vectors on any number of ranks: a ring's bytes in log2 n meetings.
//
// Paper: Traff: Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms (2024); Bruck et al.
// (1997).
#include <algorithm>
#include <utility>

#include "algorithms/rows.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

constexpr int32_t kPartials = 0, kResults = 1;  // channel numbers

// Blocks that the phase of this distance moves.
int32_t moved_in(int32_t n, int32_t distance) {
  return std::min(distance, n - distance);
}

int32_t longest_message(int32_t n) {
  int32_t longest = 1;
  for (int32_t distance = 1; distance < n; distance *= 2)
    longest = std::max(longest, moved_in(n, distance));
  return longest;
}

// `sums(d, count)`: where the partial sums of blocks me + d ... lie. The own block ends in `into`.
template <class Sums>
void reduce_to(PlanBuilder* plan, int8_t lane, Sums sums, Chunk into) {
  const int32_t n = plan->n();
  const int32_t farthest = power_of_two_below(n - 1);
  const int32_t first = moved_in(n, farthest);
  const auto inputs = [&](int32_t d, int32_t count) { return plan->input(plan->me() + d, count); };
  for (int32_t distance = farthest; distance > 0; distance /= 2) {
    const int32_t count = moved_in(n, distance);
    const bool from_input = distance == farthest;
    plan->step(lane, {.sources = {from_input ? inputs(distance, count) : sums(distance, count)},
                      .forward = plan->to(plan->after(distance), kPartials),
                      .length = plan->length(plan->me() + distance, count)});
    StepSpec fold{.sources = {from_input ? inputs(0, count) : sums(0, count),
                              plan->receive(plan->after(-distance), kPartials)},
                  .into = sums(0, count),
                  .final = distance == 1,
                  .length = plan->length(plan->me(), count)};
    if (fold.final) fold.into = into;
    plan->step(lane, std::move(fold));
    if (from_input && first < farthest)
      plan->step(lane, {.sources = {inputs(first, farthest - first)},
                        .into = sums(first, farthest - first)});
  }
}

void reduce_scatter(PlanBuilder* plan) {
  const int8_t lane = plan->lane("reduce-scatter");
  plan->pack_messages(longest_message(plan->n()));
  reduce_to(
      plan, lane, [&](int32_t d, int32_t count) { return PlanBuilder::scratch(lane, d, count); },
      plan->output(0));
}

void all_reduce(PlanBuilder* plan) {
  const int8_t reduce = plan->lane("reduce-scatter"), gather = plan->lane("all-gather");
  const int32_t n = plan->n(), me = plan->me();
  plan->pack_messages(longest_message(n));
  reduce_to(
      plan, reduce, [&](int32_t d, int32_t count) { return plan->output(me + d, count); },
      plan->output(me));
  for (int32_t distance = 1; distance < n; distance *= 2) {
    const int32_t count = moved_in(n, distance);
    plan->step(gather, {.sources = {plan->output(me, count)},
                        .forward = plan->to(plan->after(-distance), kResults)});
    plan->step(gather, {.sources = {plan->receive(plan->after(distance), kResults)},
                        .into = plan->output(me + distance, count)});
  }
}

constexpr About kAbout{"circulant", "Traff 2024; Bruck et al. 1997", true, 9, kUnmeasured};
constexpr Way kWays[] = {{Collective::kAllReduce, all_reduce, block_a_rank},
                         {Collective::kReduceScatter, reduce_scatter}};

Cost cost(const PlanRequest& request) {
  const double n = request.ranks;
  const double share = (n - 1) / n, phases = ceil_log2(request.ranks);
  const double taken_over = power_of_two_below(request.ranks) == request.ranks ? 0 : 0.5;
  if (request.collective == Collective::kAllReduce)
    return {.messages = 2 * phases,
            .wire_bytes = 2 * share,
            .reduce_bytes = 2 * share,
            .copy_bytes = taken_over};
  return {
      .messages = phases, .wire_bytes = share, .reduce_bytes = 2 * share, .copy_bytes = taken_over};
}

}  // namespace

Algorithm circulant_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
