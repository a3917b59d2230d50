// Direct: the slice's owner reads all. Rank o owns block o of n. Each rank sends every owner its
// block (copy-in); the owner folds the n inputs of its block in rank order 0..n-1 in one step, so
// they are rounded once, and sends the result to all (reduce); each rank puts the others' results
// in place (copy-out). Three lanes, so that slice k+1 is copied in while slice k is reduced and
// slice k-1 copied out. Two meetings whatever n: the algorithm of shared memory, and of any network
// where all pairs are equally far. The owner's fold is the reproducible order.
//
// Notation: n ranks, S bytes of the collective (all n blocks for all-gather and kin).
//   all-reduce:     n-1 copy-in + 1 reduce (+ n-1 sends without multicast and n > 2) + n-1 copy-out
//   steps; a rank sends (n-1)/n S and S/n to all, receives 2 (n-1)/n S.
//   reduce-scatter: n-1 copy-in + 1 reduce; sends and receives (n-1)/n S.
//   reduce:         as reduce-scatter, then non-root owners send their block to the root: the root
//   receives 2 (n-1)/n S.
//   all-gather:     as flat.h: 1 (n-1 without multicast) + n-1 steps.
//   broadcast:      the root's 1 step sends S to all (n-1 steps without multicast); the others
//   receive in 1.
//   gather, scatter: the root n steps, (n-1)/n S; the others 1 step, S/n.
// Wins in shared memory above a few KiB, and elsewhere for long vectors: least bytes, two meetings.
//
// Paper: Rabenseifner: Optimization of Collective Reduction Operations (2004), for reduce-scatter +
// all-gather; over shared memory: Jain et al., Framework for Scalable Intra-Node Collective
// Operations using Shared Memory (SC 2018).
#include "algorithms/flat.h"
#include "algorithms/rows.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

constexpr int32_t kInputs = 0, kResults = 1;  // channel numbers

void copy_in(PlanBuilder* plan, int8_t lane) {
  plan->repeat_others([&](int32_t owner) {
    plan->step(lane, {.sources = {plan->input(owner)}, .forward = plan->to(owner, kInputs)});
  });
}

// The own block of all ranks' inputs, in rank order.
std::vector<Source> own_block_of_all(PlanBuilder* plan) {
  std::vector<Source> sources;
  for (int32_t rank = 0; rank < plan->n(); ++rank) {
    if (rank == plan->me())
      sources.push_back(plan->input(plan->me()));
    else
      sources.push_back(plan->receive(rank, kInputs));
  }
  return sources;
}

void direct_all_reduce(PlanBuilder* plan) {
  const int8_t in = plan->lane("copy-in"), reduce = plan->lane("reduce"),
               out = plan->lane("copy-out");
  copy_in(plan, in);
  plan->step_to_all(
      reduce, {.sources = own_block_of_all(plan), .into = plan->output(plan->me()), .final = true},
      kResults);
  plan->repeat_others([&](int32_t owner) {
    plan->step(out,
               {.sources = {plan->receive_shared(owner, kResults)}, .into = plan->output(owner)});
  });
}

void direct_reduce_scatter(PlanBuilder* plan) {
  const int8_t in = plan->lane("copy-in"), reduce = plan->lane("reduce");
  copy_in(plan, in);
  plan->step(reduce, {.sources = own_block_of_all(plan), .into = plan->output(0), .final = true});
}

void direct_reduce(PlanBuilder* plan) {
  const int8_t in = plan->lane("copy-in"), reduce = plan->lane("reduce"),
               out = plan->lane("copy-out");
  copy_in(plan, in);
  StepSpec fold{.sources = own_block_of_all(plan), .final = true};
  if (!plan->is_root()) {
    fold.forward = plan->to(plan->root(), kResults);
    plan->step(reduce, std::move(fold));
    return;
  }
  fold.into = plan->output(plan->me());
  plan->step(reduce, std::move(fold));
  plan->repeat_others([&](int32_t owner) {
    plan->step(out, {.sources = {plan->receive(owner, kResults)}, .into = plan->output(owner)});
  });
}

void direct_broadcast(PlanBuilder* plan) {
  const int8_t send = plan->lane("send"), receive = plan->lane("receive");
  if (plan->is_root())
    plan->step_to_all(send, {.sources = {plan->input(0)}, .into = plan->output(0)});
  else
    plan->step(receive, {.sources = {plan->receive_shared(plan->root())}, .into = plan->output(0)});
}

void direct_scatter(PlanBuilder* plan) {
  const int8_t send = plan->lane("send"), receive = plan->lane("receive");
  if (!plan->is_root()) {
    plan->step(receive, {.sources = {plan->receive(plan->root())}, .into = plan->output(0)});
    return;
  }
  plan->repeat_others([&](int32_t peer) {
    plan->step(send, {.sources = {plan->input(peer)}, .forward = plan->to(peer)});
  });
  plan->step(send, {.sources = {plan->input(plan->me())}, .into = plan->output(0)});
}

// The sum's blocks have owners; other vectors stay whole.
constexpr About kAbout{"direct", "Rabenseifner 2004; Jain et al. 2018"};
constexpr Way kWays[] = {
    {Collective::kAllReduce, direct_all_reduce, block_a_rank, true, true},
    {Collective::kReduceScatter, direct_reduce_scatter, block_a_rank, true, true},
    {Collective::kReduce, direct_reduce, block_a_rank, true, true},
    {Collective::kAllGather, flat_all_gather},
    {Collective::kGather, flat_gather},
    {Collective::kBroadcast, direct_broadcast},
    {Collective::kScatter, direct_scatter},
};

Cost cost(const PlanRequest& request) {
  const double n = request.ranks;
  const double share = (n - 1) / n;
  const double sends_to_all = request.multicast || request.ranks == 2 ? 1 : n - 1;
  switch (request.collective) {
    case Collective::kAllReduce:
      return {.messages = n - 1 + sends_to_all, .wire_bytes = 2 * share, .reduce_bytes = 1};
    case Collective::kReduce:
      // In turns on shared cores twice a tree's work, as measured (comm-bench reduce --race, 3-8
      // ranks of two cores): two phases, whose slices wait for everybody's turn.
      return {
          .messages = n, .wire_bytes = 2 * share, .reduce_bytes = 1, .total_bytes = 6 * (n - 1)};
    case Collective::kReduceScatter:
      return {.messages = n - 1, .wire_bytes = share, .reduce_bytes = 1};
    case Collective::kAllGather:
      return {.messages = sends_to_all, .wire_bytes = share, .copy_bytes = 1 / n};
    case Collective::kBroadcast:
      return {.messages = sends_to_all, .wire_bytes = sends_to_all, .copy_bytes = 1};
    case Collective::kGather:
      return {.messages = 1, .wire_bytes = share, .copy_bytes = 1 / n};
    default:
      // The root's later sends start while the first is under way, each for a quarter of a
      // start-up, as measured (comm-bench scatter --race, 3-8 ranks, shm and tcp).
      return {.messages = 1 + (n - 2) / 4, .wire_bytes = share, .copy_bytes = 1 / n};
  }
}

}  // namespace

Algorithm direct_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
