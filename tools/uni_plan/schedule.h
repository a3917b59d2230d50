// Schedule: when each step of one round runs, if every step takes one unit of time and messages
// take none: how deep a plan is, and who waits for whom. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/plan.h"
#include "base/status.h"

namespace unisono::uni_plan {

struct StepPlace {
  int32_t rank = 0, lane = 0, step = 0;
};

// One arrow of a drawing; a send to several readers is several.
struct Arrow {
  StepPlace from, to;
};

struct Schedule {
  std::vector<std::vector<std::vector<int32_t>>> start;  // [rank][lane][step]
  std::vector<Arrow> arrows;
  int32_t length = 0;  // units until the last step has ended
};

// `plans`: one a rank, by rank. kInvalidArgument: they wait for each other for ever, or name
// channels without another end.
Result<Schedule> schedule_plans(const std::vector<Plan>& plans);

}  // namespace unisono::uni_plan
