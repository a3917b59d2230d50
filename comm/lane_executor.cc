#include "comm/lane_executor.h"

namespace unisono {

void LaneExecutor::begin(const BoundPlan& bound, const Call& call, const Geometry& geometry,
                         uint64_t fingerprint) {
  bound_ = &bound;
  rounds_ = geometry.rounds;
  runner_.begin(bound, call, geometry, fingerprint);
  lanes_.assign(bound.plan.lanes.size(), LaneState{});
}

bool LaneExecutor::awaits_passed(const Step& step, uint64_t round) const {
  for (const Await& await : step.awaits) {
    if (round < static_cast<uint64_t>(await.lag)) continue;
    const auto lane = static_cast<size_t>(await.lane);
    const uint64_t steps = bound_->plan.lanes[lane].steps.size();
    const uint64_t position =
        (round - static_cast<uint64_t>(await.lag)) * steps + static_cast<uint64_t>(await.step);
    if (lanes_[lane].passed <= position) return false;
  }
  return true;
}

bool LaneExecutor::advance_lane(size_t index) {
  LaneState& lane = lanes_[index];
  const std::vector<Step>& steps = bound_->plan.lanes[index].steps;
  if (lane.round == rounds_ || steps.empty()) return false;
  const Step& step = steps[static_cast<size_t>(lane.step)];
  if (!awaits_passed(step, lane.round)) {
    lane.waiting_for = -1;  // for another lane
    return false;
  }
  const bool was_combined = lane.combined;
  if (!runner_.try_step(step, lane.round, &lane.combined)) {
    lane.waiting_for = runner_.waiting_for();
    return lane.combined != was_combined;
  }
  lane.passed++;
  if (++lane.step == static_cast<int32_t>(steps.size())) {
    lane.step = 0;
    lane.round++;
  }
  return true;
}

Advance LaneExecutor::advance() {
  bool moved = false, ended = true;
  for (size_t i = 0; i < lanes_.size(); i++) {
    moved = advance_lane(i) || moved;
    ended = ended && (lanes_[i].round == rounds_ || bound_->plan.lanes[i].steps.empty());
    if (runner_.mismatch()) return Advance::kIdle;
  }
  if (ended && runner_.sends_complete()) return Advance::kDone;
  return moved ? Advance::kMoved : Advance::kIdle;
}

void LaneExecutor::describe(StallReport* report) const {
  for (size_t i = 0; i < lanes_.size(); i++) {
    if (lanes_[i].round == rounds_ || bound_->plan.lanes[i].steps.empty()) continue;
    report->lane = static_cast<int32_t>(i);
    report->step = lanes_[i].step;
    report->peer = lanes_[i].waiting_for;
    if (report->peer >= 0) return;
  }
}

}  // namespace unisono
