#include "tools/uni_plan/program.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace unisono::uni_plan {
namespace {

// A channel, moved so that its writer lies in the first period.
struct Key {
  int32_t number, writer, distance;
  auto operator<=>(const Key&) const = default;
};

class Compiler {
 public:
  Compiler(int32_t ranks, int32_t period) : ranks_(ranks), period_(period) {
    program_.ranks = ranks;
    program_.simulated = period;
  }

  // Rank by rank, from 0.
  Status add(const Plan& plan) {
    if (program_.lanes.empty()) {
      program_.rule = plan.rule;
      program_.blocks = plan.blocks;
      program_.message_blocks = plan.message_blocks;
      program_.lanes_per_rank = static_cast<int32_t>(plan.lanes.size());
    }
    std::vector<int32_t> channels;
    for (const ChannelId& id : plan.channels) {
      if (id.reader == kAllButWriter)
        return error(Code::kInvalidArgument, "channels of several readers are not simulated");
      channels.push_back(channel(id));
    }
    for (const Lane& lane : plan.lanes) {
      const auto number = static_cast<int32_t>(program_.lanes.size());
      program_.lanes.push_back({plan.rank, static_cast<uint32_t>(program_.steps.size()),
                                static_cast<uint32_t>(lane.steps.size())});
      for (const Step& step : lane.steps) add_step(step, channels, number);
    }
    return {};
  }

  Program take() { return std::move(program_); }

 private:
  int32_t channel(const ChannelId& id) {
    const int32_t distance = (id.reader - id.writer + ranks_) % ranks_;
    const Key key{id.number, id.writer % period_, distance};
    const auto [found, is_new] =
        numbers_.emplace(key, static_cast<int32_t>(program_.channels.size()));
    if (is_new) {
      const int32_t to = (key.writer + distance) % ranks_;
      program_.channels.push_back({key.writer, to % period_, -1, -1, to});
    }
    return found->second;
  }

  void add_step(const Step& step, const std::vector<int32_t>& channels, int32_t lane) {
    ProgramStep small;
    small.first_receive = static_cast<uint32_t>(program_.receives.size());
    small.first_await = static_cast<uint32_t>(program_.awaits.size());
    for (const Operand& source : step.sources) {
      if (!source.receive) continue;
      const int32_t number = channels[static_cast<size_t>(source.channel)];
      program_.receives.push_back(number);
      program_.channels[static_cast<size_t>(number)].reader_lane = lane;
      ++small.receives;
    }
    program_.awaits.insert(program_.awaits.end(), step.awaits.begin(), step.awaits.end());
    small.awaits = static_cast<uint16_t>(step.awaits.size());
    if (step.forward >= 0) {
      small.forward = channels[static_cast<size_t>(step.forward)];
      program_.channels[static_cast<size_t>(small.forward)].writer_lane = lane;
    }
    small.first = step.length.first;
    small.blocks = step.length.blocks;
    small.operands = static_cast<uint16_t>(step.sources.size());
    small.copies = step.sources.size() == 1 && step.has_destination;
    program_.steps.push_back(small);
  }

  int32_t ranks_, period_;
  Program program_;
  std::map<Key, int32_t> numbers_;
};

int64_t steps_of(const Plan& plan) {
  return static_cast<int64_t>(plan.order.size());
}

// What the simulator makes of a step, wherever its rank stands on the circle: which channels it
// receives from, in any order; the blocks that it names are all of one size, but for a last one.
struct StepShape {
  std::vector<Key> channels;  // received from, sorted; then the one sent to
  size_t operands = 0;
  bool has_destination = false, sends = false;
  int32_t blocks = 0;
  std::vector<std::tuple<int32_t, int32_t, int32_t>> awaits;
  bool operator==(const StepShape&) const = default;
};

StepShape shape_of(const Plan& plan, const Step& step, int32_t period) {
  const auto key = [&](int16_t channel) {
    const ChannelId& id = plan.channels[static_cast<size_t>(channel)];
    return Key{id.number, id.writer % period, (id.reader - id.writer + plan.ranks) % plan.ranks};
  };
  StepShape shape{.operands = step.sources.size(),
                  .has_destination = step.has_destination,
                  .sends = step.forward >= 0,
                  .blocks = step.length.blocks};
  for (const Operand& source : step.sources)
    if (source.receive) shape.channels.push_back(key(source.channel));
  std::sort(shape.channels.begin(), shape.channels.end());
  if (shape.sends) shape.channels.push_back(key(step.forward));
  for (const Await& await : step.awaits)
    shape.awaits.emplace_back(await.lane, await.step, await.lag);
  std::sort(shape.awaits.begin(), shape.awaits.end());
  return shape;
}

// Whether `moved`, of rank r + period * k, is `plan`, of rank r, moved on.
bool is_moved(const Plan& plan, const Plan& moved, int32_t period) {
  if (plan.lanes.size() != moved.lanes.size()) return false;
  const auto same_step = [&](const Step& a, const Step& b) {
    return shape_of(plan, a, period) == shape_of(moved, b, period);
  };
  for (size_t l = 0; l < plan.lanes.size(); ++l) {
    const std::vector<Step>&a = plan.lanes[l].steps, &b = moved.lanes[l].steps;
    if (!std::equal(a.begin(), a.end(), b.begin(), b.end(), same_step)) return false;
  }
  return true;
}

// Tried on the second, third, middle and last period.
Result<bool> repeats(const std::string& algorithm, PlanRequest request, int32_t period) {
  const int32_t periods = request.ranks / period;
  for (int32_t r = 0; r < period; ++r) {
    request.rank = r;
    TRY_ASSIGN(const Plan plan, build_plan(algorithm, request));
    for (const int32_t k : {1, std::min(2, periods - 1), periods / 2, periods - 1}) {
      request.rank = r + k * period;
      TRY_ASSIGN(const Plan moved, build_plan(algorithm, request));
      if (!is_moved(plan, moved, period)) return false;
    }
  }
  return true;
}

// A plan numbers its channels in 16 bits, and the builder insists. How many a rank has is known
// only when it is built; so a small world's are counted first, where they grow with it.
Status check_channels(const std::string& algorithm, PlanRequest request) {
  constexpr int32_t kSample = 256;
  const int32_t ranks = std::exchange(request.ranks, kSample);
  request.hosts = {};
  request.rank = request.root = 0;
  const Algorithm* const row = find_algorithm(algorithm);
  if (ranks <= kSample || row == nullptr || !row->supports(request)) return {};
  const auto sample = static_cast<int64_t>(row->build(request).channels.size());
  if (sample < kSample || sample * ranks / kSample < INT16_MAX) return {};
  return error(Code::kInvalidUsage, "more channels on a rank than a plan can number");
}

}  // namespace

Result<Program> compile_program(const std::string& algorithm, PlanRequest request,
                                const Topology& topology, const ProgramOptions& options) {
  request.multicast = false;  // one reader a channel, as over networks
  TRY(check_channels(algorithm, request));
  request.rank = 0;
  int32_t simulated = request.ranks;
  const int32_t period = options.whole ? request.ranks : topology.period();
  if (period < request.ranks) {
    TRY_ASSIGN(const bool symmetric, repeats(algorithm, request, period));
    if (symmetric) simulated = period;
  }
  // Before all of them are built: is it worth trying?
  int64_t most = 0;
  for (const int32_t rank : {0, request.ranks / 2, request.ranks - 1}) {
    request.rank = rank;
    TRY_ASSIGN(const Plan plan, build_plan(algorithm, request));
    most = std::max(most, steps_of(plan));
  }
  if (most * simulated > options.most_steps)
    return error(Code::kInvalidUsage, "{} steps on {} ranks: more than {} in all", most, simulated,
                 options.most_steps);
  Compiler compiler(request.ranks, simulated);
  for (request.rank = 0; request.rank < simulated; ++request.rank) {
    TRY_ASSIGN(const Plan plan, build_plan(algorithm, request));
    TRY(compiler.add(plan));
  }
  return compiler.take();
}

Result<Program> compile_plans(const std::vector<Plan>& plans) {
  const auto ranks = static_cast<int32_t>(plans.size());
  Compiler compiler(ranks, ranks);
  for (const Plan& plan : plans) TRY(compiler.add(plan));
  return compiler.take();
}

}  // namespace unisono::uni_plan
