// PAT: parallel aggregated trees. All-gather: every rank's block goes down a binomial tree of its
// own, all n trees at once and turned so that they look alike from each rank. The longest distance
// comes first: with v = (rank - owner) mod n, in the phase of distance D (a power of two, falling
// to 1) every v that is a multiple of 2 D passes the block on to v + D. So rank r sends to r + D,
// in one message, all blocks that it has so far (but the one whose v + D would pass n), and far
// messages are few and short, which is what the algorithm is for: the many bytes travel next door.
// Reduce-scatter runs the trees backwards, from distance 1 up, folding on the way.
//
// A message's blocks must be consecutive, so they are kept in scratch in the order of their
// arrival: what a phase brings goes behind what is there, or before it where the last one was not
// sent on. So no message is ever packed. All-gather then copies each block to its place (lane
// "unpack"); reduce-scatter first copies its input into that order (lane "pack").
//
// Notation: n ranks, S bytes of the collective (all n blocks), L = ceil(log2 n).
//   all-gather:     2 L steps and n copies; sends and receives (n-1)/n S, the least possible.
//   reduce-scatter: n copies and 2 L steps; sends and receives (n-1)/n S. A partial sum is rounded
//   at each of at most L folds.
// Wins for short and middling blocks on any number of ranks, above all where far links are slow.
//
// Paper: Jeaugey: PAT: a new algorithm for all-gather and reduce-scatter operations at scale
// (2025), here without its limit on how many blocks one message takes: slices do that.
#include <algorithm>
#include <deque>

#include "algorithms/rows.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

// A phase of the all-gather: scratch blocks [sent, sent + count) go to the rank `distance` on and
// come to lie in [got, got + count) there.
struct Phase {
  int32_t distance = 0, sent = 0, got = 0, count = 0;
};

// The same on every rank.
struct Layout {
  std::vector<Phase> phases;
  std::vector<int32_t> v_at;  // by scratch block
  int32_t own = 0;            // scratch block of v = 0
  int32_t longest = 1;        // message
};

Layout layout_of(int32_t n) {
  std::deque<int32_t> held = {0};
  int32_t front = 0;  // places before v = 0, to be added to all that was said earlier
  Layout layout;
  for (int32_t distance = n == 1 ? 0 : power_of_two_below(n - 1); distance > 0; distance /= 2) {
    // The last one of `held` is always the largest, and no other one can pass n.
    const int32_t before = static_cast<int32_t>(held.size());
    const bool all = held.back() + distance < n;
    const int32_t count = all ? before : before - 1;
    Phase phase{.distance = distance, .sent = -front, .got = -front + before, .count = count};
    std::vector<int32_t> got(held.begin(), held.begin() + count);
    for (int32_t& v : got) v += distance;
    if (all) {
      held.insert(held.end(), got.begin(), got.end());
    } else {
      held.insert(held.begin(), got.begin(), got.end());
      front += count;
      phase.got = -front;
    }
    layout.longest = std::max(layout.longest, count);
    layout.phases.push_back(phase);
  }
  for (Phase& phase : layout.phases) {
    phase.sent += front;
    phase.got += front;
  }
  layout.own = front;
  layout.v_at.assign(held.begin(), held.end());
  return layout;
}

// body(scratch block, v) for every block that a phase brings.
template <class Body>
void for_each_got(const Layout& layout, const Phase& phase, Body body) {
  for (int32_t i = phase.got; i < phase.got + phase.count; ++i)
    body(i, layout.v_at[static_cast<size_t>(i)]);
}

void all_gather(PlanBuilder* plan) {
  const int8_t send = plan->lane("send"), receive = plan->lane("receive"),
               unpack = plan->lane("unpack");
  const Layout layout = layout_of(plan->n());
  plan->pack_messages(layout.longest);
  const auto scratch = [&](int32_t first, int32_t count) {
    return PlanBuilder::scratch(receive, first, count);
  };
  StepSpec first{.sources = {plan->input(0)}, .into = scratch(layout.own, 1)};
  for (const Phase& phase : layout.phases) {
    first.forward = plan->to(plan->after(phase.distance));
    plan->step(send, first);
    plan->step(receive, {.sources = {plan->receive(plan->after(-phase.distance))},
                         .into = scratch(phase.got, phase.count)});
    const size_t next = static_cast<size_t>(&phase - layout.phases.data()) + 1;
    if (next < layout.phases.size())
      first = {.sources = {scratch(layout.phases[next].sent, layout.phases[next].count)}};
  }
  plan->step(unpack, {.sources = {plan->input(0)}, .into = plan->output(plan->me())});
  for (const Phase& phase : layout.phases)
    for_each_got(layout, phase, [&](int32_t block, int32_t v) {
      plan->step(unpack, {.sources = {scratch(block, 1)}, .into = plan->output(plan->me() - v)});
    });
}

void reduce_scatter(PlanBuilder* plan) {
  const int8_t pack = plan->lane("pack"), send = plan->lane("send"), reduce = plan->lane("reduce");
  const Layout layout = layout_of(plan->n());
  plan->pack_messages(layout.longest);
  const auto scratch = [&](int32_t first, int32_t count) {
    return PlanBuilder::scratch(pack, first, count);
  };
  // In the order in which they are needed.
  for (size_t i = layout.phases.size(); i-- > 0;)
    for_each_got(layout, layout.phases[i], [&](int32_t block, int32_t v) {
      plan->step(pack, {.sources = {plan->input(plan->me() - v)}, .into = scratch(block, 1)});
    });
  plan->step(pack, {.sources = {plan->input(plan->me())}, .into = scratch(layout.own, 1)});
  for (size_t i = layout.phases.size(); i-- > 0;) {
    const Phase& phase = layout.phases[i];
    const Chunk sums = scratch(phase.sent, phase.count);
    plan->step(send, {.sources = {scratch(phase.got, phase.count)},
                      .forward = plan->to(plan->after(-phase.distance))});
    plan->step(reduce, {.sources = {sums, plan->receive(plan->after(phase.distance))},
                        .into = i == 0 ? plan->output(0) : sums,
                        .final = i == 0});
  }
}

constexpr About kAbout{"pat", "Jeaugey 2025", true, 9, kUnmeasured};
// A message's blocks are not consecutive, so no length could name them were they unequal.
constexpr Way kWays[] = {
    {Collective::kAllGather, all_gather, one_block, true, false, any_ranks, false},
    {Collective::kReduceScatter, reduce_scatter, one_block, true, false, any_ranks, false}};

Cost cost(const PlanRequest& request) {
  const double n = request.ranks;
  const double share = (n - 1) / n, phases = ceil_log2(request.ranks);
  // Copies: into scratch and out of it.
  if (request.collective == Collective::kAllGather)
    return {.messages = phases, .wire_bytes = share, .copy_bytes = 1 + 1 / n};
  return {.messages = phases, .wire_bytes = share, .reduce_bytes = 2 * share, .copy_bytes = 1};
}

}  // namespace

Algorithm pat_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
