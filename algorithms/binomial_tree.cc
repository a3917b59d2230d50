// Binomial tree. Let v = (rank - root) mod n. The parent of v is v with its lowest set bit cleared;
// the children of v are v + 2^j for every 2^j below that bit (below n for the root): the subtree of
// v is the `span` ranks v ... v + span - 1. Broadcast goes down, largest subtree first; reduce goes
// up, each rank folding its own input and all its children's partial results in one step;
// all-reduce and barrier are the one to rank 0, then the other. Gather and scatter carry the
// subtree's blocks in one message, so that the root handles log2 n messages instead of n-1.
// Receiving and sending have lanes of their own: else a root's log2 n sends a slice would hold up
// its children's (31 ranks, 64 slices: 1152 units against 334).
//
// Notation: n ranks, S bytes of the collective, c(v) children, ceil(log2 n) at the root.
//   broadcast:  1 receive of S (not the root), c(v) sends of S (the root, n > 1, copies its input
//   in the first). reduce:     1 step; receives c(v) S, sends S (not the root). all-reduce,
//   barrier: 1 + 1 + c(v) steps (the root no receive). gather:     inner rank: 1 copy, c(v)
//   receives, 1 send of its span blocks of S/n; leaf: 1 send; root: 1 + c(v) steps. scatter: inner
//   rank: 1 receive of span blocks, 1 copy, c(v) sends; leaf: 1 receive; root: 1 + c(v) steps.
//
// Paper: Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH
// (2005).
#include <algorithm>

#include "algorithms/builder.h"
#include "algorithms/rows.h"

namespace unisono {
namespace {

constexpr const char* kName = "binomial_tree";
constexpr int32_t kUp = 0, kDown = 1;  // channel numbers

// This rank's place in the tree.
struct Place {
  int32_t n = 1;
  int32_t root = 0;
  int32_t v = 0;     // this rank relative to the root
  int32_t span = 1;  // ranks of the own subtree: v ... v + span - 1
  int32_t parent = -1;
  std::vector<int32_t> steps;  // children are v + step; ascending

  int32_t rank_of(int32_t relative) const { return (relative + root) % n; }
  int32_t child(int32_t step) const { return rank_of(v + step); }
  // Ranks of the subtree of v + step.
  int32_t child_span(int32_t step) const { return std::min(step, n - v - step); }
  bool is_leaf() const { return steps.empty(); }
};

Place place_of(const PlanBuilder& plan, int32_t root) {
  Place place;
  place.n = plan.n();
  place.root = root;
  place.v = (plan.me() - root + place.n) % place.n;
  // Steps stay below the lowest set bit of v. 64 bits: the last doubling may pass 2^31.
  const int64_t lowest_bit = place.v == 0 ? place.n : place.v & -place.v;
  for (int64_t step = 1; step < lowest_bit && place.v + step < place.n; step *= 2)
    place.steps.push_back(static_cast<int32_t>(step));
  if (place.v != 0) {
    place.parent = place.rank_of(place.v & (place.v - 1));
    place.span = static_cast<int32_t>(std::min<int64_t>(lowest_bit, place.n - place.v));
  } else {
    place.span = place.n;
  }
  return place;
}

// The most blocks that a message of gather or scatter carries: the largest subtree of a child of
// the root.
int32_t largest_subtree(int32_t n) {
  int32_t largest = 1;
  for (int64_t step = 1; step < n; step *= 2)
    largest = std::max(largest, static_cast<int32_t>(std::min(step, n - step)));
  return largest;
}

// Sends `from` to the children, largest subtree first. The first send also copies into `into`, if
// any.
void send_down(PlanBuilder* plan, const Place& place, int8_t lane, Chunk from,
               std::optional<Chunk> into) {
  for (size_t i = place.steps.size(); i-- > 0;) {
    plan->step(
        lane,
        {.sources = {from}, .into = into, .forward = plan->to(place.child(place.steps[i]), kDown)});
    into.reset();
  }
}

void tree_broadcast(PlanBuilder* plan) {
  const int8_t receive = plan->lane("receive"), send = plan->lane("send");
  const Place place = place_of(*plan, plan->root());
  if (plan->is_root()) {
    send_down(plan, place, send, plan->input(0), plan->output(0));
    return;
  }
  plan->step(receive, {.sources = {plan->receive(place.parent, kDown)}, .into = plan->output(0)});
  send_down(plan, place, send, plan->output(0), std::nullopt);
}

// One fold of the own input and all children's partial results; the root's goes to the output,
// others' up.
void fold_up(PlanBuilder* plan, const Place& place, int8_t lane) {
  StepSpec fold{.sources = {plan->input(0)}};
  for (int32_t step : place.steps) fold.sources.push_back(plan->receive(place.child(step), kUp));
  if (place.parent < 0) {
    fold.into = plan->output(0);
    fold.final = true;
  } else {
    fold.forward = plan->to(place.parent, kUp);
  }
  plan->step(lane, std::move(fold));
}

void tree_reduce(PlanBuilder* plan) {
  fold_up(plan, place_of(*plan, plan->root()), plan->lane("reduce"));
}

void tree_all_reduce(PlanBuilder* plan) {
  const int8_t reduce = plan->lane("reduce"), receive = plan->lane("receive"),
               send = plan->lane("send");
  const Place place = place_of(*plan, 0);
  fold_up(plan, place, reduce);
  if (place.parent >= 0)
    plan->step(receive, {.sources = {plan->receive(place.parent, kDown)}, .into = plan->output(0)});
  send_down(plan, place, send, plan->output(0), std::nullopt);
}

void tree_gather(PlanBuilder* plan) {
  plan->pack_messages(largest_subtree(plan->n()));
  const int8_t receive = plan->lane("receive"), send = plan->lane("send");
  const Place place = place_of(*plan, plan->root());
  if (place.parent >= 0 && place.is_leaf()) {
    plan->step(send, {.sources = {plan->input(0)}, .forward = plan->to(place.parent, kUp)});
    return;
  }
  // The subtree's blocks, relative to the own one: in the output at the root, in scratch elsewhere.
  const auto blocks = [&](int32_t first, int32_t count) {
    return plan->is_root() ? plan->output(plan->me() + first, count)
                           : PlanBuilder::scratch(receive, first, count);
  };
  plan->step(receive, {.sources = {plan->input(0)}, .into = blocks(0, 1)});
  for (int32_t step : place.steps)
    plan->step(receive, {.sources = {plan->receive(place.child(step), kUp)},
                         .into = blocks(step, place.child_span(step))});
  if (place.parent >= 0)
    plan->step(send, {.sources = {blocks(0, place.span)}, .forward = plan->to(place.parent, kUp)});
}

void tree_scatter(PlanBuilder* plan) {
  plan->pack_messages(largest_subtree(plan->n()));
  const int8_t receive = plan->lane("receive"), send = plan->lane("send");
  const Place place = place_of(*plan, plan->root());
  if (place.parent >= 0 && place.is_leaf()) {
    plan->step(receive, {.sources = {plan->receive(place.parent, kDown)}, .into = plan->output(0)});
    return;
  }
  const auto blocks = [&](int32_t first, int32_t count) {
    return plan->is_root() ? plan->input(plan->me() + first, count)
                           : PlanBuilder::scratch(receive, first, count);
  };
  if (place.parent >= 0)
    plan->step(receive,
               {.sources = {plan->receive(place.parent, kDown)}, .into = blocks(0, place.span)});
  for (size_t i = place.steps.size(); i-- > 0;)
    plan->step(send, {.sources = {blocks(place.steps[i], place.child_span(place.steps[i]))},
                      .forward = plan->to(place.child(place.steps[i]), kDown)});
  plan->step(receive, {.sources = {blocks(0, 1)}, .into = plan->output(0)});
}

bool supports(const PlanRequest& request) {
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kBarrier:
      return true;
    default:
      return false;
  }
}

Plan build(const PlanRequest& request) {
  if (request.ranks == 1) return copy_plan(kName, request, true, false);
  PlanBuilder plan(kName, request);
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kBarrier:
      tree_all_reduce(&plan);
      break;
    case Collective::kReduce:
      tree_reduce(&plan);
      break;
    case Collective::kBroadcast:
      tree_broadcast(&plan);
      break;
    case Collective::kGather:
      tree_gather(&plan);
      break;
    case Collective::kScatter:
      tree_scatter(&plan);
      break;
    default:
      CHECK(supports(request));
  }
  return plan.finish(true, false);
}

Cost cost(const PlanRequest& request) {
  if (request.ranks == 1) return {.copy_bytes = 1};
  const double n = request.ranks;
  double depth = 0;
  for (int64_t reach = 1; reach < request.ranks; reach *= 2) ++depth;
  switch (request.collective) {
    case Collective::kAllReduce:
    case Collective::kBarrier:
      return {.messages = 2 * depth, .wire_bytes = depth, .reduce_bytes = depth + 1};
    case Collective::kReduce:
      return {.messages = depth, .wire_bytes = depth, .reduce_bytes = depth + 1};
    case Collective::kBroadcast:
      return {.messages = depth, .wire_bytes = depth, .copy_bytes = 1};
    default:
      // The root's bytes, and the relays' copies through scratch.
      return {.messages = depth, .wire_bytes = (n - 1) / n, .copy_bytes = 0.5 + 1 / n};
  }
}

}  // namespace

Algorithm binomial_tree_row() {
  return {.name = kName,
          .paper = "Thakur, Rabenseifner, Gropp 2005 (binomial tree)",
          .reproducible = false,
          .late = true,
          .pipelines = true,
          .supports = supports,
          .build = build,
          .cost = cost};
}

}  // namespace unisono
