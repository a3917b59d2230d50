// Flat collectives: one message from each who has to each who wants, no relaying. One-shot and
// direct share them.
#pragma once

#include "algorithms/builder.h"

namespace unisono {

// Lane "send": the own input is copied to output block `me` and sent to everyone in the same step
// (one step with multicast, else n-1). Lane "receive": n-1 steps, one an owner.
void flat_all_gather(PlanBuilder* plan);
// Non-roots send their input (1 step). The root copies its own and receives n-1 blocks (n steps).
void flat_gather(PlanBuilder* plan);

}  // namespace unisono
