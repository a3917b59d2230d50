// A plan as a picture. Pure.
#pragma once

#include <string>
#include <vector>

#include "algorithms/plan.h"
#include "base/status.h"

namespace unisono::uni_plan {

inline constexpr int32_t kMaxDrawnRanks = 64;
inline constexpr size_t kMaxDrawnSteps = 20'000;

// Time runs to the right, a band a rank, in it a row a lane that has steps; every step is a box,
// every message an arrow; both have their words as tooltips. kInvalidArgument: too large to be
// read.
Result<std::string> to_svg(const std::vector<Plan>& plans);

}  // namespace unisono::uni_plan
