// The two halves of a ring, over all ranks or over a list of them (one rank a host, say).
#pragma once

#include "algorithms/builder.h"

namespace unisono {

// Position `me` of `size` on a ring; the block of position i is blocks `first` + i of the buffers.
struct RingPlace {
  int32_t size = 1, me = 0;
  int32_t left = 0, right = 0;  // ranks
  int32_t first = 0;            // block of position 0
  int32_t number = 0;           // channel

  int32_t block(int32_t position) const { return first + wrap(position, size); }
};
RingPlace ring_of_all(const PlanBuilder& plan, int32_t number);

// `size` steps: block c starts at position c + 1 and travels right, each rank adding its own
// input, until its owner c has the sum in `sum`. `part(b)`: this rank's operand for block b.
template <class Part>
void ring_reduce_scatter(PlanBuilder* plan, int8_t lane, const RingPlace& ring, Part part,
                         Chunk sum) {
  const auto mine = [&](int32_t position) { return Source(part(ring.block(position))); };
  plan->step(lane, {.sources = {mine(ring.me - 1)}, .forward = plan->to(ring.right, ring.number)});
  plan->repeat(ring.size - 2, [&](int32_t i) {
    plan->step(lane, {.sources = {plan->receive(ring.left, ring.number), mine(ring.me - 2 - i)},
                      .forward = plan->to(ring.right, ring.number)});
  });
  plan->step(lane, {.sources = {plan->receive(ring.left, ring.number), mine(ring.me)},
                    .into = sum,
                    .final = true});
}

// `size` steps: each owner's block travels right once around, into output block(position). `own`:
// the first step without its forward.
void ring_all_gather(PlanBuilder* plan, int8_t lane, const RingPlace& ring, StepSpec own);

}  // namespace unisono
