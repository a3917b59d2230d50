// One-shot, or flat exchange. Every rank sends its whole input to every other rank; who wants the
// result folds what it has received together with its own input, in rank order 0..n-1, in one step.
// One meeting instead of two, for n times the reading: the small-message path (MSCCL and
// TensorRT-LLM call it one-shot all-reduce; in MPI it is the flat or linear algorithm).
//
// Notation: n ranks, S bytes of the collective (all n blocks for all-gather and gather).
//   all-reduce, barrier: 1 send (n-1 without multicast) and 1 fold; a rank sends S (times n-1
//   without multicast) and receives (n-1) S.
//   reduce:     non-roots 1 send of S; the root 1 fold of (n-1) S received.
//   all-gather: 1 step sends S/n to all (n-1 without multicast), n-1 receive (n-1)/n S.
//   gather:     non-roots 1 send of S/n; the root n steps, receives (n-1)/n S.
// Wins for short vectors on few ranks: one meeting.
//
// Not for late mode in place: two ranks' folds would each wait until the other has read the input
// that they overwrite.
//
// Paper: Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH
// (2005), the linear forms.
#include "algorithms/flat.h"
#include "algorithms/rows.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

void fold_all(PlanBuilder* plan, int8_t reduce, bool shared) {
  StepSpec fold{.into = plan->output(0), .final = true};
  for (int32_t rank = 0; rank < plan->n(); ++rank) {
    if (rank == plan->me())
      fold.sources.push_back(plan->input(0));
    else
      fold.sources.push_back(shared ? plan->receive_shared(rank) : plan->receive(rank));
  }
  plan->step(reduce, std::move(fold));
}

void one_shot_all_reduce(PlanBuilder* plan) {
  const int8_t send = plan->lane("send"), reduce = plan->lane("reduce");
  plan->step_to_all(send, {.sources = {plan->input(0)}});
  fold_all(plan, reduce, true);
}

void one_shot_reduce(PlanBuilder* plan) {
  const int8_t send = plan->lane("send"), reduce = plan->lane("reduce");
  if (plan->is_root())
    fold_all(plan, reduce, false);
  else
    plan->step(send, {.sources = {plan->input(0)}, .forward = plan->to(plan->root())});
}

// Where nobody overwrites an input that others may still read, a send by reference is safe (rule
// 5).
constexpr About kAbout{"one_shot", "Thakur, Rabenseifner, Gropp 2005 (linear forms)", false};
constexpr Way kWays[] = {
    {Collective::kAllReduce, one_shot_all_reduce, one_block, false, true},
    {Collective::kBarrier, one_shot_all_reduce, one_block, false, false},
    {Collective::kReduce, one_shot_reduce, one_block, true, true},
    {Collective::kAllGather, flat_all_gather},
    {Collective::kGather, flat_gather},
};

Cost cost(const PlanRequest& request) {
  const double n = request.ranks;
  const bool gathers =
      request.collective == Collective::kAllGather || request.collective == Collective::kGather;
  const bool to_root = has_root(request.collective);
  Cost cost;
  cost.messages = request.multicast || to_root || request.ranks == 2 ? 1 : n - 1;
  cost.wire_bytes = gathers ? (n - 1) / n : n - 1;
  cost.reduce_bytes = gathers ? 0 : n;
  cost.copy_bytes = gathers ? 1 / n : 0;
  return cost;
}

}  // namespace

Algorithm one_shot_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
