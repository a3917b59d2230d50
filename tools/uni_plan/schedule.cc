#include "tools/uni_plan/schedule.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace unisono::uni_plan {
namespace {

class Scheduler {
 public:
  explicit Scheduler(const std::vector<Plan>& plans) : plans_(plans) {
    for (const Plan& plan : plans) {
      schedule_.start.emplace_back(plan.lanes.size());
      free_at_.emplace_back(plan.lanes.size(), 0);
    }
  }

  Result<Schedule> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (const Plan& plan : plans_)
        for (size_t lane = 0; lane < plan.lanes.size(); ++lane)
          while (advance(plan, lane)) moved = true;
    }
    for (const Plan& plan : plans_) {
      for (size_t lane = 0; lane < plan.lanes.size(); ++lane) {
        const size_t done = starts(plan.rank, lane).size();
        if (done == plan.lanes[lane].steps.size()) continue;
        return error(Code::kInvalidArgument, "rank {} lane {} step {} waits for ever", plan.rank,
                     plan.lanes[lane].name, done);
      }
    }
    return std::move(schedule_);
  }

 private:
  struct Sent {
    StepPlace by;
    int32_t at = 0;
  };
  std::vector<int32_t>& starts(int32_t rank, size_t lane) {
    return schedule_.start[static_cast<size_t>(rank)][lane];
  }

  // The next message of the channel to this rank; null: not sent yet.
  const Sent* next_message(const Plan& plan, const ChannelId& id) {
    const std::vector<Sent>& sent = sent_[id];
    const size_t taken = taken_[{id, plan.rank}];
    return taken < sent.size() ? &sent[taken] : nullptr;
  }

  // When the step can run, or nothing while that is not known.
  std::optional<int32_t> ready_at(const Plan& plan, const Step& step) {
    int32_t time = 0;
    for (const Await& await : step.awaits) {
      if (await.lag != 0) continue;  // of an earlier round: there is none
      const auto lane = static_cast<size_t>(await.lane);
      const std::vector<int32_t>& other = starts(plan.rank, lane);
      if (static_cast<size_t>(await.step) >= other.size()) return std::nullopt;
      time = std::max(time, other[static_cast<size_t>(await.step)] + 1);
    }
    for (const Operand& source : step.sources) {
      if (!source.receive) continue;
      const Sent* message = next_message(plan, plan.channels[static_cast<size_t>(source.channel)]);
      if (message == nullptr) return std::nullopt;
      time = std::max(time, message->at);
    }
    return time;
  }

  bool advance(const Plan& plan, size_t lane) {
    std::vector<int32_t>& start = starts(plan.rank, lane);
    if (start.size() == plan.lanes[lane].steps.size()) return false;
    const Step& step = plan.lanes[lane].steps[start.size()];
    const std::optional<int32_t> ready = ready_at(plan, step);
    if (!ready) return false;
    const StepPlace place{plan.rank, static_cast<int32_t>(lane),
                          static_cast<int32_t>(start.size())};
    for (const Operand& source : step.sources) {
      if (!source.receive) continue;
      const ChannelId& id = plan.channels[static_cast<size_t>(source.channel)];
      schedule_.arrows.push_back({next_message(plan, id)->by, place});
      ++taken_[{id, plan.rank}];
    }
    int32_t& free_at = free_at_[static_cast<size_t>(plan.rank)][lane];
    start.push_back(std::max(free_at, *ready));
    free_at = start.back() + 1;
    schedule_.length = std::max(schedule_.length, free_at);
    if (step.forward >= 0)
      sent_[plan.channels[static_cast<size_t>(step.forward)]].push_back({place, free_at});
    return true;
  }

  const std::vector<Plan>& plans_;
  Schedule schedule_;
  std::vector<std::vector<int32_t>> free_at_;  // [rank][lane]
  std::map<ChannelId, std::vector<Sent>> sent_;
  std::map<std::pair<ChannelId, int32_t>, size_t> taken_;  // by channel and reader
};

}  // namespace

Result<Schedule> schedule_plans(const std::vector<Plan>& plans) {
  return Scheduler(plans).run();
}

}  // namespace unisono::uni_plan
