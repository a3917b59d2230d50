// Awaits: derived from what the steps touch, never written by hand (rules 10 and 11 of
// docs/plan-machine.md).
#pragma once

#include "algorithms/plan.h"

namespace unisono {

// Fills the awaits of every step of `plan` (lanes, order and scratch_blocks must be complete). For
// each overlapping pair of steps in different lanes, one of them writing, the later in `order`
// awaits the earlier (lag 0); a scratch block's next use of the same parity awaits the last ones
// (lag 2). Awaits that others of the same lane imply are left out. Pure; linear in the plan's steps
// and blocks.
void derive_awaits(Plan* plan);

// The in-place form that a collective allows makes some input block some output block; both get one
// name here, so that overlaps are seen in any form (rules 10 and 16). Names: >= 0, below 2 *
// plan.blocks.
int32_t user_block_name(const Plan& plan, Buffer buffer, int32_t block);

}  // namespace unisono
