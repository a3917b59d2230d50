// The other collectives of two_level.cc, which describes the algorithm: with a block a rank
// (two_level_blocks.cc), and with one speaker a host (two_level_rooted.cc).
#pragma once

#include "algorithms/builder.h"

namespace unisono {

void two_level_all_gather(PlanBuilder* plan);
void two_level_reduce_scatter(PlanBuilder* plan);
void two_level_barrier(PlanBuilder* plan);
void two_level_gather(PlanBuilder* plan);
void two_level_scatter(PlanBuilder* plan);

}  // namespace unisono
