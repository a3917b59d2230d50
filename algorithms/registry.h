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
  // The host of each rank, any numbers; empty: all ranks are on one host. Not owned: must outlive
  // the call that the request is given to, and be the same on every rank.
  std::span<const int32_t> hosts = {};
  // Blocks of an all-gather, reduce-scatter, gather or scatter may differ in length (v-variants).
  bool unequal_blocks = false;
};

// What an algorithm costs, for the planner (alpha-beta-gamma, Hockney; Thakur 2005). Per rank, on
// the critical path.
struct Cost {
  double messages = 0;      // start-ups, in rounds of latency
  double wire_bytes = 0;    // per byte of the collective's size (n blocks for all-gather and kin)
  double reduce_bytes = 0;  // per byte of size, read by reductions
  double copy_bytes = 0;    // per byte of size, copied locally
  // Over all ranks, per byte of size: written to wires, read by reductions, copied. It decides
  // where ranks share cores and so take turns. 0: ranks x what is on the critical path. Where it is
  // given, it was measured there, and least_ranks of the row do not hold.
  double total_bytes = 0;
};

inline constexpr int32_t kUnmeasured = 0x7fffffff;

struct Algorithm {
  const char* name;   // "ring"
  const char* paper;  // where it comes from
  bool reproducible;  // folds 0..n-1 in one node, whatever the size (rule 15)
  bool late;          // proved in late mode (rule 5)
  bool pipelines;     // more than one round may be in flight with profit
  // The planner by itself leaves it out on fewer ranks, and on fewer ranks of one memory
  // (multicast): it counts every start-up alike, though a flat algorithm's messages overlap and
  // those of a relay wait for each other. 1 where it was measured; kUnmeasured: never.
  int32_t least_ranks, least_ranks_in_one_memory;
  bool (*supports)(const PlanRequest&);
  Plan (*build)(const PlanRequest&);  // pure; supports() must be true
  Cost (*cost)(const PlanRequest&);
};

std::span<const Algorithm> algorithms();
const Algorithm* find_algorithm(std::string_view name);  // nullptr: unknown
// Builds, or kInvalidArgument that says which algorithms do support the request.
Result<Plan> build_plan(std::string_view algorithm, const PlanRequest& request);

}  // namespace unisono
