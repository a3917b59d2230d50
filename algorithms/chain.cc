// Chain: the ranks in a line from the root (broadcast) or to it (reduce); every rank passes each
// slice on as soon as it has it, adding its own input on the way to the root. The line is the ring
// of ranks cut at the root.
//
// Notation: n ranks, S bytes.
//   broadcast, reduce: 1 step a rank; each but the last of the line sends S, the least possible. A
//   slice takes n-1 hops; a partial sum is rounded at each.
// Wins for long vectors on few ranks: once the line is full, every link carries S and no more. For
// many ranks the trees fill sooner (double_binary_tree).
//
// Paper: Pjesivac-Grbovic, Angskun, Bosilca, Fagg, Gabriel, Dongarra: Performance analysis of MPI
// collective operations (2007), "pipeline"; Patarasuk, Yuan (2009) for the ring it is cut from.
#include <utility>

#include "algorithms/rows.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

// root, root + 1, ..., root - 1.
void broadcast(PlanBuilder* plan) {
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

// root + 1, root + 2, ..., root.
void reduce(PlanBuilder* plan) {
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

constexpr About kAbout{"chain", "Pjesivac-Grbovic et al. 2007; Patarasuk, Yuan 2009"};
constexpr Way kWays[] = {{Collective::kBroadcast, broadcast}, {Collective::kReduce, reduce}};

Cost cost(const PlanRequest& request) {
  const double n = request.ranks;
  if (request.collective == Collective::kBroadcast)
    return {.messages = n - 1, .wire_bytes = 1, .copy_bytes = 1};
  return {.messages = n - 1, .wire_bytes = 1, .reduce_bytes = 2, .total_bytes = 3 * (n - 1)};
}

}  // namespace

Algorithm chain_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
