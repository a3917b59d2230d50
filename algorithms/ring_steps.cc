#include "algorithms/ring_steps.h"

#include <utility>

namespace unisono {

RingPlace ring_of_all(const PlanBuilder& plan, int32_t number) {
  return {.size = plan.n(),
          .me = plan.me(),
          .left = plan.after(-1),
          .right = plan.after(1),
          .number = number};
}

void ring_all_gather(PlanBuilder* plan, int8_t lane, const RingPlace& ring, StepSpec own) {
  own.forward = plan->to(ring.right, ring.number);
  plan->step(lane, std::move(own));
  plan->repeat(ring.size - 2, [&](int32_t i) {
    plan->step(lane, {.sources = {plan->receive(ring.left, ring.number)},
                      .into = plan->output(ring.block(ring.me - 1 - i)),
                      .forward = plan->to(ring.right, ring.number)});
  });
  plan->step(lane, {.sources = {plan->receive(ring.left, ring.number)},
                    .into = plan->output(ring.block(ring.me + 1))});
}

}  // namespace unisono
