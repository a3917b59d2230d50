// What can be said about a set of plans before a step of them is looked at: they are of one call,
// and their buffers are cut as the collective's own table says (rules 6 to 8).
#include "algorithms/verify/shape.h"

#include <algorithm>

namespace unisono::verify {
namespace {

struct Shape {
  BlockRule rule;
  int32_t input_blocks, output_blocks;
};

// The collective's own table, for a call cut into `blocks` blocks.
Shape expected_shape(const Plan& plan) {
  const int32_t n = plan.ranks;
  const bool at_root = plan.rank == plan.root;
  switch (plan.collective) {
    case Collective::kAllGather:
      return {BlockRule::kWhole, 1, n};
    case Collective::kGather:
      return {BlockRule::kWhole, 1, at_root ? n : 0};
    case Collective::kReduceScatter:
      return {BlockRule::kWhole, n, 1};
    case Collective::kScatter:
      return {BlockRule::kWhole, at_root ? n : 0, 1};
    case Collective::kAllToAll:
      return {BlockRule::kWhole, n, n};
    case Collective::kReduce:
      return {BlockRule::kSplit, plan.blocks, at_root ? plan.blocks : 0};
    case Collective::kBroadcast:
      return {BlockRule::kSplit, at_root ? plan.blocks : 0, plan.blocks};
    case Collective::kAllReduce:
    case Collective::kBarrier:
      break;
  }
  return {BlockRule::kSplit, plan.blocks, plan.blocks};
}

Status differs(const Plan& plan, const char* what) {
  return violation("6", Place{plan}, "{} differs from rank 0's", what);
}

Status check_same_call(const Plan& first, const Plan& plan) {
  if (plan.algorithm != first.algorithm) return differs(plan, "algorithm");
  if (plan.collective != first.collective) return differs(plan, "collective");
  if (plan.ranks != first.ranks) return differs(plan, "number of ranks");
  if (plan.root != first.root) return differs(plan, "root");
  if (plan.rule != first.rule || plan.blocks != first.blocks) return differs(plan, "block rule");
  if (plan.message_blocks != first.message_blocks) return differs(plan, "message_blocks");
  if (plan.late != first.late) return differs(plan, "late");
  if (plan.reproducible != first.reproducible) return differs(plan, "reproducible");
  if (plan.lanes.size() != first.lanes.size()) return differs(plan, "number of lanes");
  for (size_t l = 0; l < plan.lanes.size(); ++l) {
    if (plan.lanes[l].name != first.lanes[l].name) return differs(plan, "name of a lane");
  }
  return {};
}

}  // namespace

Status check_shape(const Plans& plans) {
  const int32_t ranks = static_cast<int32_t>(plans.size());
  if (ranks < 1) return error(Code::kInvalidArgument, "no plans");
  for (int32_t r = 0; r < ranks; ++r) {
    const Plan& plan = plans[at(r)];
    const Place where{plan};
    if (static_cast<int>(plan.collective) >= kCollectives) {
      return error(Code::kInternalError, "rule 6: rank {}: no such collective", r);
    }
    TRY(check_same_call(plans[0], plan));
    if (plan.lanes.size() > 127) return violation("11", where, "{} lanes", plan.lanes.size());
    if (plan.rank != r || plan.ranks != ranks) {
      return violation("6", where, "is the plan of rank {} of {}", plan.rank, plan.ranks);
    }
    if (plan.root < 0 || plan.root >= ranks) return violation("6", where, "root {}", plan.root);
    if (plan.blocks < 1) return violation("6", where, "{} blocks", plan.blocks);
    const Shape shape = expected_shape(plan);
    // One block is the same under either rule.
    const bool rule_fits = plan.rule == shape.rule || plan.blocks == 1;
    if (!rule_fits || plan.input_blocks != shape.input_blocks ||
        plan.output_blocks != shape.output_blocks ||
        plan.blocks < std::max(plan.input_blocks, plan.output_blocks)) {
      return violation(plan.output_blocks > 0 && shape.output_blocks == 0 ? "8" : "6", where,
                       "{} has {} input and {} output blocks of {}",
                       collective_name(plan.collective), plan.input_blocks, plan.output_blocks,
                       plan.blocks);
    }
    if (plan.scratch_blocks.size() != plan.lanes.size()) {
      return violation("7", where, "scratch of {} lanes, but {} lanes", plan.scratch_blocks.size(),
                       plan.lanes.size());
    }
    for (int32_t blocks : plan.scratch_blocks) {
      if (blocks < 0) return violation("7", where, "{} scratch blocks", blocks);
    }
  }
  return {};
}

}  // namespace unisono::verify
