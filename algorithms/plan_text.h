// Plans as text that can be kept, sent and read back: docs/plan-format.md. Written by `uni-plan
// export`; read by `uni-plan import` and, named by UNISONO_PLAN_FILE, by the library.
//
// Pure. The text comes from outside: the parser trusts none of it, is bounded in time and memory,
// and says line and field of what it cannot read. What it returns is well-formed, not right: only
// verify_plans (algorithms/verify) says that.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/plan.h"
#include "base/status.h"

namespace unisono {

inline constexpr int kPlanTextVersion = 1;
inline constexpr size_t kMaxPlanTextBytes = size_t{64} << 20;

// `plans`: one a rank, by rank, of one call, as verify_plans accepts them (or as build_plan makes
// them).
std::string to_plan_text(std::span<const Plan> plans);

// kInvalidArgument: "line 12: length: '3x' is not FIRST+BLOCKS".
Result<std::vector<Plan>> parse_plan_text(std::string_view text);

// Of the meaning, not of the text: comments and spaces do not count. Never 0. What all ranks agree
// on.
uint64_t plan_hash(std::span<const Plan> plans);

}  // namespace unisono
