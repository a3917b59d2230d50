// Plans as text and as JSON. Pure.
#pragma once

#include <span>
#include <string>

#include "algorithms/plan.h"

namespace unisono::uni_plan {

// For people. unroll: every step of a repeat, not just the first of its bodies.
std::string to_text(const Plan& plan, bool unroll);
// One step, on one line.
std::string step_text(const Plan& plan, const Step& step);
// For programs: {algorithm, collective, ranks, root, ..., plans: [one a rank]}; the names are
// plan.h's.
std::string to_json(std::span<const Plan> plans);

}  // namespace unisono::uni_plan
