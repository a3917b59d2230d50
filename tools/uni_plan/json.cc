#include <nlohmann/json.hpp>

#include "tools/uni_plan/text.h"

namespace unisono::uni_plan {
namespace {

using nlohmann::ordered_json;

ordered_json chunk_json(const Chunk& chunk) {
  const char* names[] = {"input", "output", "scratch"};
  ordered_json json = {{"buffer", names[static_cast<int>(chunk.buffer)]},
                       {"first", chunk.first},
                       {"blocks", chunk.blocks}};
  if (chunk.buffer == Buffer::kScratch) json["lane"] = chunk.lane;
  return json;
}

ordered_json step_json(const Step& step) {
  ordered_json json;
  json["sources"] = ordered_json::array();
  for (const Operand& source : step.sources)
    json["sources"].push_back(source.receive ? ordered_json{{"receive", source.channel}}
                                             : ordered_json{{"chunk", chunk_json(source.chunk)}});
  if (step.has_destination) json["destination"] = chunk_json(step.destination);
  if (step.forward >= 0) json["forward"] = step.forward;
  json["length"] = {{"first", step.length.first}, {"blocks", step.length.blocks}};
  if (step.final) json["final"] = true;
  for (const Await& await : step.awaits)
    json["awaits"].push_back({{"lane", await.lane}, {"step", await.step}, {"lag", await.lag}});
  return json;
}

ordered_json lane_json(const Lane& lane) {
  ordered_json json = {{"name", lane.name}};
  json["steps"] = ordered_json::array();
  json["repeats"] = ordered_json::array();
  for (const Step& step : lane.steps) json["steps"].push_back(step_json(step));
  for (const Repeat& repeat : lane.repeats)
    json["repeats"].push_back(
        {{"first", repeat.first}, {"body", repeat.body}, {"times", repeat.times}});
  return json;
}

ordered_json plan_json(const Plan& plan) {
  ordered_json json = {{"rank", plan.rank},
                       {"input_blocks", plan.input_blocks},
                       {"output_blocks", plan.output_blocks},
                       {"scratch_blocks", plan.scratch_blocks}};
  json["channels"] = ordered_json::array();
  for (const ChannelId& id : plan.channels) {
    ordered_json channel = {{"number", id.number}, {"writer", id.writer}};
    if (id.reader == kAllButWriter)
      channel["readers"] = "all but the writer";
    else
      channel["readers"] = {id.reader};
    json["channels"].push_back(std::move(channel));
  }
  json["lanes"] = ordered_json::array();
  for (const Lane& lane : plan.lanes) json["lanes"].push_back(lane_json(lane));
  json["order"] = ordered_json::array();
  for (const auto& [lane, step] : plan.order) json["order"].push_back({lane, step});
  return json;
}

}  // namespace

std::string to_json(std::span<const Plan> plans) {
  const Plan& any = plans.front();
  ordered_json json = {{"algorithm", any.algorithm},
                       {"collective", collective_name(any.collective)},
                       {"ranks", any.ranks},
                       {"root", has_root(any.collective) ? any.root : -1},
                       {"block_rule", any.rule == BlockRule::kSplit ? "split" : "whole"},
                       {"blocks", any.blocks},
                       {"message_blocks", any.message_blocks},
                       {"late", any.late},
                       {"reproducible", any.reproducible}};
  json["plans"] = ordered_json::array();
  for (const Plan& plan : plans) json["plans"].push_back(plan_json(plan));
  return json.dump(1) + "\n";
}

}  // namespace unisono::uni_plan
