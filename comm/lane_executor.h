// LaneExecutor: runs a bound plan for one call: lanes in order, rounds overlapping, awaits between
// lanes (PLAN_MACHINE).
#pragma once

#include <cstdint>
#include <vector>

#include "comm/operation.h"
#include "comm/step_runner.h"

namespace unisono {

class LaneExecutor {
 public:
  explicit LaneExecutor(Communicator& communicator) : runner_(communicator) {}

  void begin(const BoundPlan& bound, const Call& call, const Geometry& geometry,
             uint64_t fingerprint);
  // One turn: every lane runs at most one step, in the plan's order of lanes. That keeps a lane
  // from running ahead while others could work, which is what keeps slices in the cache.
  Advance advance();
  void abandon() { runner_.abandon(); }
  void describe(StallReport* report) const;  // lane, step and peer of the first lane that waits

 private:
  struct LaneState {
    uint64_t passed = 0;  // steps passed, over all rounds: the counter of rule 11
    int32_t step = 0;
    uint64_t round = 0;
    bool combined = false;
    int32_t waiting_for = -1;
  };
  bool awaits_passed(const Step& step, uint64_t round) const;
  bool advance_lane(size_t lane);

  StepRunner runner_;
  const BoundPlan* bound_ = nullptr;
  uint64_t rounds_ = 1;
  std::vector<LaneState> lanes_;
};

}  // namespace unisono
