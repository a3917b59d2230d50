#include "algorithms/plan_text.h"

#include <fmt/format.h>

#include <iterator>

namespace unisono {
namespace {

const char* word(bool value) {
  return value ? "yes" : "no";
}

std::string chunk_text(const Chunk& chunk) {
  switch (chunk.buffer) {
    case Buffer::kInput:
      return fmt::format("input:{}+{}", chunk.first, chunk.blocks);
    case Buffer::kOutput:
      return fmt::format("output:{}+{}", chunk.first, chunk.blocks);
    case Buffer::kScratch:
      break;
  }
  return fmt::format("scratch.{}:{}+{}", chunk.lane, chunk.first, chunk.blocks);
}

void append_step(const Step& step, int8_t lane, std::string* text) {
  auto out = std::back_inserter(*text);
  fmt::format_to(out, "step {} ", lane);
  bool first = true;
  for (const Operand& source : step.sources) {
    if (!first) *text += ',';
    first = false;
    if (source.receive) {
      fmt::format_to(out, "recv:{}", source.channel);
    } else {
      *text += chunk_text(source.chunk);
    }
  }
  if (step.has_destination) *text += " into " + chunk_text(step.destination);
  if (step.forward >= 0) fmt::format_to(out, " send {}", step.forward);
  fmt::format_to(out, " length {}+{}", step.length.first, step.length.blocks);
  if (step.final) *text += " final";
  for (const Await& await : step.awaits) {
    fmt::format_to(out, " after {}.{}", await.lane, await.step);
    if (await.lag != 0) fmt::format_to(out, "-{}", await.lag);
  }
  *text += '\n';
}

void append_rank(const Plan& plan, std::string* text) {
  auto out = std::back_inserter(*text);
  fmt::format_to(out, "rank {}\nbuffers {} {}\nscratch", plan.rank, plan.input_blocks,
                 plan.output_blocks);
  for (const int32_t blocks : plan.scratch_blocks) fmt::format_to(out, " {}", blocks);
  *text += '\n';
  for (const ChannelId& id : plan.channels) {
    fmt::format_to(out, "channel {} {} ", id.number, id.writer);
    *text += id.reader == kAllButWriter ? "all" : std::to_string(id.reader);
    *text += '\n';
  }
  for (const auto& [lane, step] : plan.order)
    append_step(plan.lanes[static_cast<size_t>(lane)].steps[static_cast<size_t>(step)], lane, text);
  for (size_t lane = 0; lane < plan.lanes.size(); ++lane)
    for (const Repeat& repeat : plan.lanes[lane].repeats)
      fmt::format_to(out, "repeat {} {} {} {}\n", lane, repeat.first, repeat.body, repeat.times);
}

}  // namespace

std::string to_plan_text(std::span<const Plan> plans) {
  const Plan& any = plans.front();
  std::string text = fmt::format(
      "unisono-plan {}\nalgorithm {}\ncollective {}\nranks {}\nroot {}\nblocks {} {}\n"
      "message_blocks {}\nlate {}\nreproducible {}\n",
      kPlanTextVersion, any.algorithm, collective_name(any.collective), any.ranks, any.root,
      any.rule == BlockRule::kSplit ? "split" : "whole", any.blocks, any.message_blocks,
      word(any.late), word(any.reproducible));
  for (const Lane& lane : any.lanes) text += fmt::format("lane {}\n", lane.name);
  for (const Plan& plan : plans) append_rank(plan, &text);
  text += "end\n";
  return text;
}

uint64_t plan_hash(std::span<const Plan> plans) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : to_plan_text(plans)) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash == 0 ? 1 : hash;
}

}  // namespace unisono
