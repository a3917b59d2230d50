// SmallExecutor: the small path. Runs a bound plan of one round in the builder's emission order
// (PLAN_MACHINE rule 10), one step after the other, with no lanes, awaits or per-step objects.
// tests/comm compares it step by step with the lane executor.
#pragma once

#include <cstdint>

#include "comm/operation.h"
#include "comm/step_runner.h"

namespace unisono {

class SmallExecutor {
 public:
  explicit SmallExecutor(Communicator& communicator) : runner_(communicator) {}

  void begin(const BoundPlan& bound, const Call& call, const Geometry& geometry,
             uint64_t fingerprint) {
    bound_ = &bound;
    next_ = 0;
    combined_ = false;
    runner_.begin(bound, call, geometry, fingerprint);
  }
  Advance advance() {
    const size_t before = next_;
    while (next_ < bound_->small.size()) {
      if (!runner_.try_step(*bound_->small[next_].step, 0, &combined_)) {
        return next_ != before ? Advance::kMoved : Advance::kIdle;
      }
      next_++;
    }
    if (runner_.sends_complete()) return Advance::kDone;
    return next_ != before ? Advance::kMoved : Advance::kIdle;
  }
  void abandon() { runner_.abandon(); }
  void describe(StallReport* report) const {
    if (next_ == bound_->small.size()) return;
    report->lane = bound_->small[next_].lane;
    report->step = bound_->small[next_].index;
    report->peer = runner_.waiting_for();
  }

 private:
  StepRunner runner_;
  const BoundPlan* bound_ = nullptr;
  size_t next_ = 0;
  bool combined_ = false;
};

}  // namespace unisono
