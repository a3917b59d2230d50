#include "algorithms/flat.h"

namespace unisono {

void flat_all_gather(PlanBuilder* plan) {
  const int8_t send = plan->lane("send"), receive = plan->lane("receive");
  plan->step_to_all(send, {.sources = {plan->input(0)}, .into = plan->output(plan->me())});
  plan->repeat_others([&](int32_t owner) {
    plan->step(receive, {.sources = {plan->receive_shared(owner)}, .into = plan->output(owner)});
  });
}

void flat_gather(PlanBuilder* plan) {
  const int8_t send = plan->lane("send"), receive = plan->lane("receive");
  if (!plan->is_root()) {
    plan->step(send, {.sources = {plan->input(0)}, .forward = plan->to(plan->root())});
    return;
  }
  plan->step(receive, {.sources = {plan->input(0)}, .into = plan->output(plan->me())});
  plan->repeat_others([&](int32_t owner) {
    plan->step(receive, {.sources = {plan->receive(owner)}, .into = plan->output(owner)});
  });
}

}  // namespace unisono
