// The algorithms: one row each, one file each. A registry is an object; nothing registers itself.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "algorithms/plan.h"
#include "base/status.h"

namespace unisono {

struct PlanRequest {
  Collective collective = Collective::kAllReduce;
  int32_t ranks = 1, rank = 0, root = 0;
  bool multicast =
      true;  // channels may have several readers; otherwise only single-reader channels are used
};

// What an algorithm costs, for the planner (alpha-beta-gamma, Hockney; Thakur 2005). Per rank, on
// the critical path.
struct Cost {
  double messages = 0;      // start-ups, in rounds of latency
  double wire_bytes = 0;    // per byte of the collective's size (n blocks for all-gather and kin)
  double reduce_bytes = 0;  // per byte of size, read by reductions
  double copy_bytes = 0;    // per byte of size, copied locally
};

struct Algorithm {
  const char* name;   // "ring"
  const char* paper;  // where it comes from
  bool reproducible;  // folds 0..n-1 in one node, whatever the size (rule 15)
  bool late;          // proved in late mode (rule 5)
  bool pipelines;     // more than one round may be in flight with profit
  bool (*supports)(const PlanRequest&);
  Plan (*build)(const PlanRequest&);  // pure; supports() must be true
  Cost (*cost)(const PlanRequest&);
};

std::span<const Algorithm> algorithms();
const Algorithm* find_algorithm(std::string_view name);  // nullptr: unknown
// Builds, or kInvalidArgument that says which algorithms do support the request.
Result<Plan> build_plan(std::string_view algorithm, const PlanRequest& request);

}  // namespace unisono
