// The block-a-rank collectives of two_level.cc, which describes the algorithm.
#pragma once

#include "algorithms/builder.h"

namespace unisono {

void two_level_all_gather(PlanBuilder* plan);
void two_level_reduce_scatter(PlanBuilder* plan);

}  // namespace unisono
