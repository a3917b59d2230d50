#include "tools/uni_plan/text.h"

#include <fmt/format.h>

#include <iterator>

namespace unisono::uni_plan {
namespace {

std::string channel_text(const Plan& plan, int16_t index) {
  const ChannelId& id = plan.channels[static_cast<size_t>(index)];
  const std::string reader =
      id.reader == kAllButWriter ? "all but the writer" : std::to_string(id.reader);
  return fmt::format("c{} (#{} {} -> {})", index, id.number, id.writer, reader);
}

std::string chunk_text(const Plan& plan, const Chunk& chunk) {
  std::string name = chunk.buffer == Buffer::kInput    ? "input"
                     : chunk.buffer == Buffer::kOutput ? "output"
                                                       : "scratch";
  if (chunk.buffer == Buffer::kScratch)
    name += fmt::format(" of {}", plan.lanes[static_cast<size_t>(chunk.lane)].name);
  if (chunk.blocks == 1) return fmt::format("{}[{}]", name, chunk.first);
  return fmt::format("{}[{}, {} blocks]", name, chunk.first, chunk.blocks);
}

void append_lane(const Plan& plan, const Lane& lane, bool unroll, std::string* text) {
  auto out = std::back_inserter(*text);
  fmt::format_to(out, "  lane {}: {} steps\n", lane.name, lane.steps.size());
  size_t next_repeat = 0;
  const int32_t steps = static_cast<int32_t>(lane.steps.size());
  for (int32_t i = 0; i < steps;) {
    const bool repeats = next_repeat < lane.repeats.size() && lane.repeats[next_repeat].first == i;
    if (!repeats) {
      fmt::format_to(out, "    {:4}  {}\n", i, step_text(plan, lane.steps[static_cast<size_t>(i)]));
      ++i;
      continue;
    }
    const Repeat& repeat = lane.repeats[next_repeat++];
    fmt::format_to(out, "    repeat {} times:\n", repeat.times);
    const int32_t shown = repeat.body * (unroll ? repeat.times : 1);
    for (int32_t s = i; s < i + shown; ++s)
      fmt::format_to(out, "      {:4}  {}\n", s,
                     step_text(plan, lane.steps[static_cast<size_t>(s)]));
    if (!unroll)
      fmt::format_to(out, "        ..  to step {}, peers and blocks one further each time\n",
                     i + repeat.body * repeat.times - 1);
    i += repeat.body * repeat.times;
  }
}

}  // namespace

std::string step_text(const Plan& plan, const Step& step) {
  std::string text;
  for (const Operand& source : step.sources) {
    if (!text.empty()) text += " + ";
    text += source.receive ? "receive " + channel_text(plan, source.channel)
                           : chunk_text(plan, source.chunk);
  }
  if (step.has_destination) text += " => " + chunk_text(plan, step.destination);
  if (step.forward >= 0) text += " => send " + channel_text(plan, step.forward);
  if (step.final) text += ", final";
  for (const Await& await : step.awaits) {
    text +=
        fmt::format(", awaits {}.{}", plan.lanes[static_cast<size_t>(await.lane)].name, await.step);
    if (await.lag != 0) text += fmt::format(" of round k-{}", await.lag);
  }
  return text;
}

std::string to_text(const Plan& plan, bool unroll) {
  std::string text = fmt::format("{} {}: rank {} of {}", plan.algorithm,
                                 collective_name(plan.collective), plan.rank, plan.ranks);
  if (has_root(plan.collective)) text += fmt::format(", root {}", plan.root);
  text += plan.rule == BlockRule::kSplit ? fmt::format("; one vector in {} block(s)", plan.blocks)
                                         : fmt::format("; {} whole block(s)", plan.blocks);
  text += fmt::format(", input {}, output {}", plan.input_blocks, plan.output_blocks);
  for (size_t i = 0; i < plan.lanes.size(); ++i)
    if (plan.scratch_blocks[i] > 0)
      text += fmt::format(", scratch of {} {}", plan.lanes[i].name, plan.scratch_blocks[i]);
  if (plan.message_blocks > 1)
    text += fmt::format(", messages of up to {} blocks", plan.message_blocks);
  if (plan.late) text += "; late";
  if (plan.reproducible) text += "; reproducible";
  text += '\n';
  for (const Lane& lane : plan.lanes) append_lane(plan, lane, unroll, &text);
  return text;
}

}  // namespace unisono::uni_plan
