// The plan of UNISONO_PLAN_FILE: read, proved, and used for the calls that it states
// (docs/plan-format.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "algorithms/plan.h"
#include "base/status.h"
#include "comm/call.h"
#include "comm/planner.h"

namespace unisono {

inline constexpr char kPlanFileVariable[] = "UNISONO_PLAN_FILE";

// Of one rank; immutable.
struct PlanFile {
  Plan plan;                     // this rank's; of another number of ranks: rank 0's
  uint64_t hash = 0;             // of all ranks' plans
  bool several_readers = false;  // some channel of some rank has several

  // Whether the communicator's call is one that the file states. v-variants are not.
  bool serves(const Call& call, int32_t ranks) const;
  // Whether the communicator can run it; kInvalidArgument names the variable and why not. The same
  // on every rank. Ok where the file is for another number of ranks.
  Status check(const Agreement& agreement) const;
};

// Reads and proves the plans of all ranks, and keeps this one's. Blocks on the file.
// kInvalidArgument whose message begins with the variable's name: not a regular file, unreadable,
// malformed (with the line), or not proved (with the rule).
Result<std::shared_ptr<const PlanFile>> load_plan_file(const std::string& path, int32_t rank,
                                                       int32_t ranks);

}  // namespace unisono
