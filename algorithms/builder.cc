#include "algorithms/builder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "algorithms/awaits.h"
#include "base/check.h"

namespace unisono {
namespace {

// How the collective's buffers are cut (rule 6), and which of them this rank has.
void set_shape(Plan* plan, int32_t split_blocks) {
  const int32_t n = plan->ranks;
  const bool at_root = plan->rank == plan->root;
  plan->rule = BlockRule::kWhole;
  plan->blocks = n;
  switch (plan->collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kBarrier:
      plan->rule = BlockRule::kSplit;
      plan->blocks = split_blocks;
      plan->input_blocks =
          plan->collective == Collective::kBroadcast && !at_root ? 0 : split_blocks;
      plan->output_blocks = plan->collective == Collective::kReduce && !at_root ? 0 : split_blocks;
      break;
    case Collective::kAllGather:
    case Collective::kGather:
      plan->input_blocks = 1;
      plan->output_blocks = plan->collective == Collective::kGather && !at_root ? 0 : n;
      break;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      plan->input_blocks = plan->collective == Collective::kScatter && !at_root ? 0 : n;
      plan->output_blocks = 1;
      break;
    case Collective::kAllToAll:
      plan->input_blocks = n;
      plan->output_blocks = n;
      break;
  }
}

}  // namespace

PlanBuilder::PlanBuilder(std::string_view algorithm, const PlanRequest& request,
                         int32_t split_blocks)
    : multicast_(request.multicast), hosts_(request.hosts) {
  CHECK(request.ranks >= 1 && request.rank >= 0 && request.rank < request.ranks);
  CHECK(request.root >= 0 && request.root < request.ranks && split_blocks >= 1);
  plan_.algorithm = algorithm;
  plan_.collective = request.collective;
  plan_.ranks = request.ranks;
  plan_.rank = request.rank;
  plan_.root = request.root;
  set_shape(&plan_, split_blocks);
}

int8_t PlanBuilder::lane(std::string_view name) {
  CHECK(!repeating_ && plan_.lanes.size() < std::numeric_limits<int8_t>::max());
  plan_.lanes.push_back({std::string(name), {}, {}});
  plan_.scratch_blocks.push_back(0);
  return static_cast<int8_t>(plan_.lanes.size() - 1);
}

Chunk PlanBuilder::input(int32_t block, int32_t blocks) const {
  CHECK(blocks >= 1 && blocks <= plan_.input_blocks);
  return {Buffer::kInput, 0, wrap(block, plan_.input_blocks), blocks};
}

Chunk PlanBuilder::output(int32_t block, int32_t blocks) const {
  CHECK(blocks >= 1 && blocks <= plan_.output_blocks);
  return {Buffer::kOutput, 0, wrap(block, plan_.output_blocks), blocks};
}

Chunk PlanBuilder::scratch(int8_t owner, int32_t block, int32_t blocks) {
  CHECK(owner >= 0 && block >= 0 && blocks >= 1);
  return {Buffer::kScratch, owner, block, blocks};
}

int16_t PlanBuilder::channel(ChannelId id) {
  CHECK(id.writer >= 0 && id.writer < n() && id.reader < n() && id.writer != id.reader);
  CHECK(id.writer == me() || id.reader == me() || id.reader == kAllButWriter);
  const auto [found, is_new] =
      channel_index_.try_emplace(id, static_cast<int16_t>(plan_.channels.size()));
  if (is_new) {
    CHECK(plan_.channels.size() < std::numeric_limits<int16_t>::max());
    plan_.channels.push_back(id);
    reading_lane_.push_back(-1);
    writing_lane_.push_back(-1);
  }
  return found->second;
}

int16_t PlanBuilder::to(int32_t peer, int32_t number) {
  return channel({number, me(), peer});
}

Operand PlanBuilder::receive(int32_t peer, int32_t number) {
  return {true, channel({number, peer, me()}), {}};
}

int16_t PlanBuilder::to_all(int32_t number) {
  CHECK(one_send_reaches_all());
  // Reader sets are compared as sets (rule 1), so with two ranks the set has its plain name.
  return n() == 2 ? to(after(1), number) : channel({number, me(), kAllButWriter});
}

Operand PlanBuilder::receive_shared(int32_t writer, int32_t number) {
  if (n() == 2 || !multicast_) return receive(writer, number);
  return {true, channel({number, writer, kAllButWriter}), {}};
}

Chunk PlanBuilder::length(int32_t block, int32_t blocks) const {
  const Buffer longer =
      plan_.output_blocks >= plan_.input_blocks ? Buffer::kOutput : Buffer::kInput;
  return {longer, 0, wrap(block, plan_.blocks), blocks};
}

// A step's length is that of any chunk that it names in user memory, by the block's name in the
// longer buffer. Between ranks of an all-to-all every block has a length of its own; scratch alone
// tells none: there blocks are all equal.
Chunk PlanBuilder::length_of(const StepSpec& spec) const {
  if (spec.length) return *spec.length;
  std::optional<Chunk> named;
  const auto consider = [&](const Chunk& chunk) {
    if (!named || named->buffer == Buffer::kScratch) named = chunk;
  };
  if (spec.into) consider(*spec.into);
  for (const Source& source : spec.sources)
    if (!source.operand.receive) consider(source.operand.chunk);
  CHECK(named.has_value());
  if (named->buffer == Buffer::kScratch || plan_.collective == Collective::kAllToAll) {
    CHECK(plan_.rule == BlockRule::kWhole);
    return length(0, named->blocks);
  }
  return length(user_block_name(plan_, named->buffer, named->first), named->blocks);
}

void PlanBuilder::check_step(int8_t lane, const Step& step) {
  CHECK(!step.sources.empty() && (step.has_destination || step.forward >= 0));
  CHECK(step.forward < 0 || step.length.blocks <= plan_.message_blocks);
  std::vector<int16_t> read;
  for (const Operand& source : step.sources) {
    if (!source.receive) {
      CHECK(source.chunk.blocks == step.length.blocks);
      continue;
    }
    // Rule 2: an end of a channel belongs to one lane.
    CHECK(step.length.blocks <= plan_.message_blocks);
    int8_t& owner = reading_lane_[static_cast<size_t>(source.channel)];
    CHECK(owner == -1 || owner == lane);
    owner = lane;
    CHECK(plan_.channels[static_cast<size_t>(source.channel)].writer != me());
    read.push_back(source.channel);
  }
  std::sort(read.begin(), read.end());
  CHECK(std::adjacent_find(read.begin(), read.end()) == read.end());  // rule 9
  if (step.has_destination) {
    CHECK(step.destination.buffer != Buffer::kInput);
    CHECK(step.destination.blocks == step.length.blocks);
  }
  if (step.forward >= 0) {
    int8_t& owner = writing_lane_[static_cast<size_t>(step.forward)];
    CHECK(owner == -1 || owner == lane);
    owner = lane;
    CHECK(plan_.channels[static_cast<size_t>(step.forward)].writer == me());
  }
}

void PlanBuilder::step(int8_t lane, StepSpec spec) {
  CHECK(lane >= 0 && static_cast<size_t>(lane) < plan_.lanes.size());
  Step step;
  step.length = length_of(spec);
  for (const Source& source : spec.sources) step.sources.push_back(source.operand);
  step.has_destination = spec.into.has_value();
  if (spec.into) step.destination = *spec.into;
  step.forward = spec.forward;
  step.final = spec.final;
  check_step(lane, step);
  const auto need_scratch = [this](const Chunk& chunk) {
    if (chunk.buffer != Buffer::kScratch) return;
    int32_t& blocks = plan_.scratch_blocks[static_cast<size_t>(chunk.lane)];
    blocks = std::max(blocks, chunk.first + chunk.blocks);
  };
  if (step.has_destination) need_scratch(step.destination);
  for (const Operand& source : step.sources)
    if (!source.receive) need_scratch(source.chunk);
  std::vector<Step>& steps = plan_.lanes[static_cast<size_t>(lane)].steps;
  plan_.order.emplace_back(lane, static_cast<int32_t>(steps.size()));
  steps.push_back(std::move(step));
}

void PlanBuilder::step_to_all(int8_t lane, StepSpec spec, int32_t number) {
  CHECK(spec.forward == -1);
  if (one_send_reaches_all()) {
    spec.forward = to_all(number);
    step(lane, std::move(spec));
    return;
  }
  // A reduction writes its result once and the sends read it, so that a transport may send it from
  // where it lies. A plain chunk needs no step of its own: the first send takes the copy along.
  const bool computes = spec.sources.size() > 1;
  CHECK(spec.into || (!computes && !spec.sources[0].operand.receive));
  const Source result = spec.into ? Source(*spec.into) : spec.sources[0];
  if (!computes) spec.forward = to(after(1), number);
  step(lane, spec);
  const int32_t first = computes ? 1 : 2;
  repeat(n() - first, [&](int32_t i) {
    step(lane, {.sources = {result}, .forward = to(after(first + i), number)});
  });
}

void PlanBuilder::begin_repeat() {
  CHECK(!repeating_);
  repeating_ = true;
  repeat_first_.clear();
  for (const Lane& lane : plan_.lanes)
    repeat_first_.push_back(static_cast<int32_t>(lane.steps.size()));
  repeat_body_.assign(plan_.lanes.size(), 0);
}

void PlanBuilder::end_iteration(int32_t iteration) {
  for (size_t i = 0; i < plan_.lanes.size(); ++i) {
    const std::vector<Step>& steps = plan_.lanes[i].steps;
    const int32_t size = static_cast<int32_t>(steps.size());
    if (iteration == 0) repeat_body_[i] = size - repeat_first_[i];
    const int32_t body = repeat_body_[i];
    CHECK(size == repeat_first_[i] + body * (iteration + 1));
    if (iteration == 0) continue;
    for (int32_t s = size - body; s < size; ++s) {
      const Step& one = steps[static_cast<size_t>(s - body)];
      const Step& next = steps[static_cast<size_t>(s)];
      CHECK(one.sources.size() == next.sources.size() && one.final == next.final);
      CHECK(one.has_destination == next.has_destination);
      CHECK((one.forward >= 0) == (next.forward >= 0));
    }
  }
}

void PlanBuilder::end_repeat(int32_t times) {
  repeating_ = false;
  if (times < 2) return;  // nothing repeats
  for (size_t i = 0; i < plan_.lanes.size(); ++i)
    if (repeat_body_[i] > 0)
      plan_.lanes[i].repeats.push_back({repeat_first_[i], repeat_body_[i], times});
}

Plan PlanBuilder::finish(bool late, bool reproducible) {
  CHECK(!repeating_);
  plan_.late = late;
  plan_.reproducible = reproducible;
  derive_awaits(&plan_);
  return std::move(plan_);
}

Plan copy_plan(std::string_view algorithm, const PlanRequest& request, bool late,
               bool reproducible) {
  CHECK(request.ranks == 1);
  PlanBuilder plan(algorithm, request);
  const int8_t copy = plan.lane("copy");
  plan.step(
      copy,
      {.sources = {plan.input(0)}, .into = plan.output(0), .final = has_op(request.collective)});
  return plan.finish(late, reproducible);
}

}  // namespace unisono
