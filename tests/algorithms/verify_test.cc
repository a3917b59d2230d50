// The verifier itself: each rule is broken by a small plan written by hand, and the rejection names
// that rule.
#include "algorithms/verify/verify.h"

#include <gtest/gtest.h>

#include "algorithms/registry.h"
#include "algorithms/verify/random_run.h"

namespace unisono {
namespace {

using Plans = std::vector<Plan>;

Plans built(const char* algorithm, Collective collective, int32_t ranks, int32_t root = 0) {
  Plans plans;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    auto plan = build_plan(algorithm, {collective, ranks, rank, root, true});
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    plans.push_back(*plan);
  }
  return plans;
}

// By hand.
Plan blank(Collective collective, int32_t rank, int32_t input_blocks, int32_t output_blocks,
           std::vector<const char*> lanes) {
  Plan plan;
  plan.algorithm = "by_hand";
  plan.collective = collective;
  plan.ranks = 2;
  plan.rank = rank;
  plan.rule = BlockRule::kWhole;
  plan.blocks = std::max(input_blocks, output_blocks);
  plan.input_blocks = input_blocks;
  plan.output_blocks = output_blocks;
  for (const char* name : lanes) plan.lanes.push_back({name, {}, {}});
  plan.scratch_blocks.assign(lanes.size(), 0);
  return plan;
}

Chunk input(int32_t block = 0) {
  return {Buffer::kInput, 0, block, 1};
}
Chunk output(int32_t block = 0) {
  return {Buffer::kOutput, 0, block, 1};
}
Chunk scratch(int8_t lane) {
  return {Buffer::kScratch, lane, 0, 1};
}
Operand local(Chunk chunk) {
  return {false, -1, chunk};
}
Operand receive(int16_t channel) {
  return {true, channel, {}};
}

struct Emit {
  std::vector<Operand> sources;
  std::optional<Chunk> into{};
  int16_t forward = -1;
  bool final = false;
  std::vector<Await> awaits{};
};

void emit(Plan* plan, int8_t lane, Emit emit) {
  Step step;
  step.sources = emit.sources;
  step.has_destination = emit.into.has_value();
  if (emit.into) step.destination = *emit.into;
  step.forward = emit.forward;
  step.final = emit.final;
  step.awaits = emit.awaits;
  auto& steps = plan->lanes[static_cast<size_t>(lane)].steps;
  plan->order.emplace_back(lane, static_cast<int32_t>(steps.size()));
  steps.push_back(step);
}

void expect_rejected(const Plans& plans, const std::string& rule, const std::string& text,
                     const VerifyOptions& options = {}) {
  const Status status = verify_plans(plans, options);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kInternalError);
  EXPECT_EQ(status.message().rfind("rule " + rule + ":", 0), 0u) << status.message();
  EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
}

void expect_accepted(const Plans& plans, const VerifyOptions& options = {}) {
  const Status status = verify_plans(plans, options);
  EXPECT_TRUE(status.ok()) << status.message();
}

// All-reduce of two ranks, each sending its input and folding the other's with its own: in one lane
// or in two.
Plans exchange(bool receive_first = false) {
  Plans plans;
  for (int32_t rank = 0; rank < 2; ++rank) {
    Plan plan = blank(Collective::kAllReduce, rank, 1, 1, {"exchange"});
    plan.channels = {{0, rank, 1 - rank}, {0, 1 - rank, rank}};
    const std::vector<Operand> both = rank == 0 ? std::vector{local(input()), receive(1)}
                                                : std::vector{receive(1), local(input())};
    if (!receive_first) emit(&plan, 0, {.sources = {local(input())}, .forward = 0});
    emit(&plan, 0, {.sources = both, .into = output(), .final = true});
    if (receive_first) emit(&plan, 0, {.sources = {local(input())}, .forward = 0});
    plans.push_back(plan);
  }
  return plans;
}

TEST(VerifyTest, AnExchangeIsAcceptedAndOneThatReceivesFirstDeadlocks) {
  expect_accepted(exchange());
  expect_rejected(exchange(true), "14", "deadlock");
}

TEST(VerifyTest, AnInPlaceExchangeDeadlocksInLateMode) {
  VerifyOptions options;
  options.late = true;
  expect_rejected(exchange(), "14", "late mode", options);
  Plans plans = exchange();
  for (Plan& plan : plans) plan.late = true;  // a plan that claims it is proved so
  expect_rejected(plans, "14", "late mode");
  // And it does.
  RandomRunOptions run;
  run.in_place = InPlace::kAll;
  EXPECT_TRUE(random_run(plans, run).ok());
  run.late = true;
  EXPECT_NE(random_run(plans, run).message().find("deadlock"), std::string::npos);
}

TEST(VerifyTest, MoreMessagesThanSlotsBeforeTheFirstReceiveDeadlock) {
  Plans plans;
  for (int32_t rank = 0; rank < 2; ++rank) {
    Plan plan = blank(Collective::kAllReduce, rank, 4, 4, {"exchange"});
    plan.rule = BlockRule::kSplit;
    plan.channels = {{0, rank, 1 - rank}, {0, 1 - rank, rank}};
    for (int32_t b = 0; b < 4; ++b) {
      emit(&plan, 0, {.sources = {local(input(b))}, .forward = 0});
      plan.lanes[0].steps.back().length.first = b;
    }
    for (int32_t b = 0; b < 4; ++b) {
      const std::vector<Operand> both = rank == 0 ? std::vector{local(input(b)), receive(1)}
                                                  : std::vector{receive(1), local(input(b))};
      emit(&plan, 0, {.sources = both, .into = output(b), .final = true});
      plan.lanes[0].steps.back().length.first = b;
    }
    plans.push_back(plan);
  }
  expect_rejected(plans, "14", "credit of channel 0");
  VerifyOptions four;
  four.slots = 4;
  expect_accepted(plans, four);
}

TEST(VerifyTest, ChannelEndsMustAgreeBetweenRanks) {
  Plans plans = built("direct", Collective::kAllReduce, 3);
  Plans dropped = plans;
  dropped[1].lanes[2].steps.pop_back();
  dropped[1].lanes[2].repeats.clear();
  std::erase(dropped[1].order, std::pair<int8_t, int32_t>(2, 1));
  expect_rejected(dropped, "1", "messages a round");

  Plans stranger = exchange();
  stranger[0].channels[0].reader = 7;
  expect_rejected(stranger, "1", "no such channel");
  stranger = exchange();
  stranger[0].channels[1] = stranger[0].channels[0];
  expect_rejected(stranger, "1", "twice");
  stranger = exchange();
  stranger[0].lanes[0].steps[1].sources[1].channel = 0;
  expect_rejected(stranger, "1", "does not read");
  stranger = exchange();
  stranger[0].lanes[0].steps[0].forward = 1;
  expect_rejected(stranger, "1", "does not write");

  VerifyOptions options;
  options.multicast = false;
  expect_rejected(plans, "1", "several readers", options);
}

TEST(VerifyTest, AllButTheWriterOfTwoRanksIsItsOneReader) {
  Plans plans = exchange();
  plans[0].channels[0].reader = kAllButWriter;
  expect_accepted(plans);
}

TEST(VerifyTest, AChannelEndBelongsToOneLane) {
  Plans plans;
  for (int32_t rank = 0; rank < 2; ++rank) {
    Plan plan = blank(Collective::kAllToAll, rank, 2, 2, {"one", "two"});
    plan.channels = {{0, rank, 1 - rank}, {0, 1 - rank, rank}};
    emit(&plan, 0, {.sources = {local(input(1 - rank))}, .forward = 0});
    emit(&plan, 0, {.sources = {local(input(rank))}, .into = output(rank)});
    emit(&plan, 1, {.sources = {receive(1)}, .into = output(1 - rank)});
    plans.push_back(plan);
  }
  expect_accepted(plans);
  Plans twice = plans;
  for (Plan& plan : twice) {
    emit(&plan, 0, {.sources = {receive(1)}, .into = output(1 - plan.rank)});
    emit(&plan, 1, {.sources = {local(input(1 - plan.rank))}, .forward = 0});
  }
  expect_rejected(twice, "2", "too");
}

TEST(VerifyTest, ChunksStayInTheirBuffersAndHaveTheStepsLength) {
  Plans plans = built("ring", Collective::kAllReduce, 3);
  const auto first_destination = [](Plans* all) -> Step& {
    for (Step& step : (*all)[1].lanes[0].steps) {
      if (step.has_destination) return step;
    }
    ADD_FAILURE();
    return (*all)[1].lanes[0].steps[0];
  };
  Plans outside = plans;
  first_destination(&outside).destination.first = 3;
  expect_rejected(outside, "6", "buffer of 3");
  Plans shifted = plans;
  Chunk& chunk = first_destination(&shifted).destination;
  chunk.first = (chunk.first + 1) % 3;
  expect_rejected(shifted, "9", "has not the length");
  Plans no_scratch = plans;
  first_destination(&no_scratch).destination = {Buffer::kScratch, 0, 99, 1};
  expect_rejected(no_scratch, "7", "chunk");
  first_destination(&no_scratch).destination = {Buffer::kScratch, 99, 0, 1};
  expect_rejected(no_scratch, "7", "no lane");
}

TEST(VerifyTest, AnInputIsNeverWrittenAndNonRootsHaveNoOutput) {
  Plans plans = exchange();
  plans[1].lanes[0].steps[1].destination = input();
  expect_rejected(plans, "8", "writes input");
  plans = built("direct", Collective::kReduce, 3);
  plans[2].output_blocks = plans[2].blocks;
  expect_rejected(plans, "8", "output blocks");
}

TEST(VerifyTest, AStepIsWellFormed) {
  Plans plans = exchange();
  plans[0].lanes[0].steps[0].sources.clear();
  expect_rejected(plans, "9", "no source");
  plans = exchange();
  plans[0].lanes[0].steps[0].forward = -1;
  expect_rejected(plans, "9", "neither");
  plans = exchange();
  plans[0].lanes[0].steps[1].sources.push_back(receive(1));
  expect_rejected(plans, "9", "twice");
  plans = exchange();
  plans[0].lanes[0].steps[1].sources.push_back(receive(9));
  expect_rejected(plans, "9", "no channel");
  plans = exchange();
  plans[1].lanes[0].steps[0].length.blocks = 2;
  expect_rejected(plans, "9", "length");
}

TEST(VerifyTest, ADestinationEqualsAnOperandExactlyOrIsApart) {
  // All-gather in place: input is output block `rank`; a chunk of two blocks that meets it
  // elsewhere overlaps.
  Plan plan = blank(Collective::kAllToAll, 0, 2, 2, {"copy"});
  plan.scratch_blocks = {3};
  plan.message_blocks = 2;
  Plans plans = {plan, plan};
  plans[1].rank = 1;
  for (Plan& one : plans) {
    Chunk from{Buffer::kScratch, 0, 0, 2}, to{Buffer::kScratch, 0, 1, 2};
    emit(&one, 0, {.sources = {local(from)}, .into = to});
    one.lanes[0].steps[0].length.blocks = 2;
  }
  expect_rejected(plans, "9", "overlaps an operand");
}

TEST(VerifyTest, TheOrderIsOneThatASingleThreadCanRun) {
  Plans plans = exchange();
  plans[0].order.pop_back();
  expect_rejected(plans, "10", "lacks steps");
  plans = exchange();
  std::swap(plans[0].order[0], plans[0].order[1]);
  expect_rejected(plans, "10", "out of turn");
  plans = built("direct", Collective::kAllReduce, 3);
  for (size_t i = 0; i < plans[0].order.size(); ++i) {  // a copy-out that awaits its copy-in, first
    if (plans[0].order[i].first == 2) {
      std::rotate(plans[0].order.begin(), plans[0].order.begin() + static_cast<int32_t>(i),
                  plans[0].order.begin() + static_cast<int32_t>(i) + 1);
      break;
    }
  }
  expect_rejected(plans, "10", "which it awaits");
}

TEST(VerifyTest, AwaitsNameStepsOfOtherLanes) {
  const Plans plans = built("direct", Collective::kAllReduce, 3);
  const auto with = [&](Await await) {
    Plans changed = plans;
    changed[0].lanes[2].steps[0].awaits = {await};
    return changed;
  };
  expect_rejected(with({2, 0, 0}), "11", "awaits lane 2");
  expect_rejected(with({9, 0, 0}), "11", "awaits lane 9");
  expect_rejected(with({0, 0, 99}), "11", "awaits step 99");
  expect_rejected(with({0, 1, 0}), "11", "lag 1");
}

TEST(VerifyTest, RepeatsStayInTheirLaneAndDoNotNest) {
  Plans plans = exchange();
  plans[0].lanes[0].repeats = {{0, 1, 3}};
  expect_rejected(plans, "12", "leaves its lane");
  plans[0].lanes[0].repeats = {{0, 2, 1}, {1, 1, 1}};
  expect_rejected(plans, "12", "nests");
  plans[0].lanes[0].repeats = {{0, 1, 2}};
  expect_rejected(plans, "12", "not like");
}

// Rank 0 writes scratch in lane 0 and reads it in lane 1. Without the await of lag 2, lane 0 is
// held back by nothing but credit: rank 1 takes lane 0's messages only after lane 1's.
Plans held_back_by_credit(bool await) {
  Plan zero = blank(Collective::kAllGather, 0, 1, 2, {"write", "read", "in"});
  zero.scratch_blocks = {1, 0, 0};
  zero.channels = {{0, 0, 1}, {1, 0, 1}, {0, 1, 0}};
  emit(&zero, 0, {.sources = {local(input())}, .forward = 0});
  emit(&zero, 0, {.sources = {local(input())}, .into = scratch(0)});
  if (await) zero.lanes[0].steps[1].awaits = {{1, 2, 0}};
  emit(&zero, 1,
       {.sources = {local(scratch(0))}, .into = output(0), .forward = 1, .awaits = {{0, 0, 1}}});
  emit(&zero, 2, {.sources = {receive(2)}, .into = output(1)});
  Plan one = blank(Collective::kAllGather, 1, 1, 2, {"write", "read", "in"});
  one.scratch_blocks = {1, 0, 0};
  one.channels = {{0, 0, 1}, {1, 0, 1}, {0, 1, 0}};
  emit(&one, 1, {.sources = {local(input())}, .into = output(1), .forward = 2});
  emit(&one, 0, {.sources = {receive(1)}, .into = output(0)});
  emit(&one, 0, {.sources = {receive(0)}, .into = scratch(0)});
  return {zero, one};
}

TEST(VerifyTest, LanesThatMeetInMemoryAreOrderedByAwaits) {
  Plans plans = held_back_by_credit(true);
  expect_accepted(plans);
  plans[0].lanes[1].steps[0].awaits.clear();
  expect_rejected(plans, "14", "unordered");
}

TEST(VerifyTest, CreditIsNeverAnOrder) {
  expect_accepted(held_back_by_credit(true));
  expect_rejected(held_back_by_credit(false), "14", "two rounds later");
  // Right in any run at K = 2, wrong in some at K = 8.
  int wrong[2] = {0, 0};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomRunOptions run;
    run.count = 16;
    run.seed = seed;
    for (int deep = 0; deep < 2; ++deep) {
      run.slots = deep == 0 ? 2 : 8;
      if (!random_run(held_back_by_credit(false), run).ok()) ++wrong[deep];
      EXPECT_TRUE(random_run(held_back_by_credit(true), run).ok()) << "seed " << seed;
    }
  }
  EXPECT_EQ(wrong[0], 0);
  EXPECT_GT(wrong[1], 0);
}

// Rank 0's second lane writes again what the first lane wrote, after rank 1 has sent it back: or
// something of its own.
Plans written_twice(bool sent_back) {
  Plan zero = blank(Collective::kBroadcast, 0, 1, 1, {"out", "back"});
  Plan one = blank(Collective::kBroadcast, 1, 0, 1, {"out", "back"});
  zero.channels = one.channels = {{0, 0, 1}, {0, 1, 0}, {1, 0, 1}};
  emit(&zero, 0, {.sources = {local(input())}, .into = output(), .forward = 0});
  if (sent_back) {
    emit(&one, 0, {.sources = {receive(0)}, .into = output(), .forward = 1});
  } else {
    emit(&zero, 0, {.sources = {local(input())}, .forward = 2});
    emit(&one, 0, {.sources = {receive(0)}, .into = output()});
    emit(&one, 1, {.sources = {receive(2)}, .forward = 1});
  }
  emit(&zero, 1, {.sources = {receive(1)}, .into = output()});
  return {zero, one};
}

TEST(VerifyTest, AMessageThereAndBackIsAnOrder) {
  expect_accepted(written_twice(true));
  expect_accepted(written_twice(false));  // the second send comes after the write, too
  Plans unordered = written_twice(false);
  // In place, copy-out overwrites what copy-in sends; but what it receives was folded from just
  // that.
  Plans direct = built("direct", Collective::kAllReduce, 3);
  for (Plan& plan : direct) {
    for (Step& step : plan.lanes[2].steps) step.awaits.clear();
  }
  expect_accepted(direct);
  // The second send first: now nothing orders the two writes.
  std::swap(unordered[0].lanes[0].steps[0], unordered[0].lanes[0].steps[1]);
  expect_rejected(unordered, "14", "unordered");
}

TEST(VerifyTest, ValuesAreTheCollectivesOwn) {
  Plans plans = exchange();
  plans[1].lanes[0].steps[1].final = false;
  expect_rejected(plans, "15", "not the tree of rank 0");
  for (Plan& plan : plans) plan.lanes[0].steps[1].final = false;
  expect_rejected(plans, "15", "final");
  plans = exchange();  // (a, b) on one rank, (b, a) on the other
  std::swap(plans[1].lanes[0].steps[1].sources[0], plans[1].lanes[0].steps[1].sources[1]);
  plans[1].lanes[0].repeats.clear();
  expect_rejected(plans, "15", "not the tree of rank 0");
  plans = exchange();
  for (Plan& plan : plans) plan.lanes[0].steps[1].sources.push_back(local(input()));
  expect_rejected(plans, "15", "twice");
  plans = exchange();
  for (Plan& plan : plans) plan.lanes[0].steps[1].sources = {receive(1)};
  expect_rejected(plans, "15", "");
  plans = built("direct", Collective::kAllGather, 4);
  plans[2].lanes[1].steps[0].destination.first = 2;
  expect_rejected(plans, "14", "unordered");
}

TEST(VerifyTest, WhatIsReadHasBeenWritten) {
  Plans plans = exchange();
  plans[0].scratch_blocks = {1};
  plans[0].lanes[0].steps[0].sources = {local(scratch(0))};
  expect_rejected(plans, "15", "before anything is there");
}

TEST(VerifyTest, OnlyInputsArePreScaledAndOnlyOnce) {
  // Copies its input to output, then reduces from input: in place it would be scaled twice.
  Plans plans = exchange();
  for (Plan& plan : plans) {
    plan.lanes[0].steps[0].has_destination = true;
    plan.lanes[0].steps[0].destination = output();
  }
  expect_rejected(plans, "15", "overwritten in place");
  for (Plan& plan : plans) {
    for (Operand& source : plan.lanes[0].steps[1].sources) {
      if (!source.receive) source.chunk = output();
    }
  }
  expect_accepted(plans);
  // Read as output in place, nobody has scaled it.
  for (Plan& plan : plans) plan.lanes[0].steps[0].has_destination = false;
  expect_rejected(plans, "15", "before anything is there");
}

TEST(VerifyTest, AReproduciblePlanHasOneNodeWithTheRanksInOrder) {
  Plans plans = exchange();
  for (Plan& plan : plans) plan.reproducible = true;
  expect_accepted(plans);
  for (Plan& plan : plans) {
    auto& sources = plan.lanes[0].steps[1].sources;
    std::swap(sources[0], sources[1]);
  }
  expect_rejected(plans, "15", "0..n-1");
  plans = built("ring", Collective::kAllReduce, 4);
  expect_accepted(plans);
  for (Plan& plan : plans) plan.reproducible = true;
  expect_rejected(plans, "15", "0..n-1");
}

TEST(VerifyTest, ABarrierIsLeftAfterAllHaveEntered) {
  Plans plans = built("recursive_doubling", Collective::kBarrier, 4);
  expect_accepted(plans);
  Plans pairs;  // only neighbours meet
  for (int32_t rank = 0; rank < 4; ++rank) {
    Plan plan = blank(Collective::kBarrier, rank, 1, 1, {"pair"});
    plan.ranks = 4;
    plan.channels = {{0, rank, rank ^ 1}, {0, rank ^ 1, rank}};
    emit(&plan, 0, {.sources = {local(input())}, .forward = 0});
    emit(&plan, 0, {.sources = {receive(1)}, .into = output()});
    pairs.push_back(plan);
  }
  expect_rejected(pairs, "15", "before rank 2 has entered");
  int early = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RandomRunOptions run;
    run.seed = seed;
    run.count = 0;
    if (!random_run(pairs, run).ok()) ++early;
    EXPECT_TRUE(random_run(plans, run).ok()) << "seed " << seed;
  }
  EXPECT_GT(early, 0);
}

TEST(VerifyTest, PlansAreOfOneCallAndHaveItsBuffers) {
  Plans plans = exchange();
  plans[1].algorithm = "other";
  expect_rejected(plans, "6", "algorithm");
  plans = exchange();
  plans[1].root = 1;
  expect_rejected(plans, "6", "root");
  plans = exchange();
  plans[1].rank = 0;
  expect_rejected(plans, "6", "is the plan of rank 0");
  plans = built("direct", Collective::kAllGather, 3);
  for (Plan& plan : plans) plan.rule = BlockRule::kSplit;
  expect_rejected(plans, "6", "blocks");
  plans = exchange();
  plans[1].scratch_blocks.clear();
  expect_rejected(plans, "7", "scratch");
  EXPECT_EQ(verify_plans({}).code(), Code::kInvalidArgument);
}

TEST(VerifyTest, LengthsNameTheirBlocksWhereBlocksMayBeUnequal) {
  const VerifyOptions unequal{.unequal_blocks = true};
  for (const char* name : {"ring", "direct", "bruck"}) {
    const Status status = verify_plans(built(name, Collective::kAllGather, 5), unequal);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // One step of one rank that moves the right block by another one's length.
  Plans plans = built("ring", Collective::kAllGather, 5);
  Chunk& length = plans[2].lanes[0].steps[1].length;
  length.first = (length.first + 1) % 5;
  EXPECT_TRUE(verify_plans(plans).ok());
  expect_rejected(plans, "9", "length", unequal);
  // Blocks that are not consecutive have no length but a common one.
  const Plans packed = built("pat", Collective::kAllGather, 5);
  EXPECT_TRUE(verify_plans(packed).ok());
  expect_rejected(packed, "9", "length", unequal);
  EXPECT_FALSE(find_algorithm("pat")->supports(
      {.collective = Collective::kAllGather, .ranks = 5, .unequal_blocks = true}));
}

TEST(VerifyTest, AScratchBlockKeepsTheLengthThatItWasWrittenWith) {
  const VerifyOptions unequal{.unequal_blocks = true};
  Plans plans = built("binomial_tree", Collective::kScatter, 8);
  ASSERT_TRUE(verify_plans(plans, unequal).ok());
  for (Lane& lane : plans[4].lanes)  // an inner rank: passes blocks 6 and 7 on from scratch
    for (Step& step : lane.steps)
      if (step.forward >= 0 && step.length.blocks == 2) step.length.first = 4;
  EXPECT_TRUE(verify_plans(plans).ok());
  expect_rejected(plans, "9", "length", unequal);
}

TEST(VerifyTest, PlansAfterEachOtherOverTheSameChannelsDoNotMix) {
  const Plans ring = built("ring", Collective::kAllReduce, 4);
  const Plans direct = built("direct", Collective::kAllReduce, 4);
  const Status status = verify_sequence(ring, direct);
  EXPECT_TRUE(status.ok()) << status.message();
  // A plan whose last message nobody receives blocks the next.
  Plans leaves = exchange();
  for (Plan& plan : leaves) emit(&plan, 0, {.sources = {local(input())}, .forward = 0});
  EXPECT_FALSE(verify_sequence(leaves, exchange()).ok());
}

}  // namespace
}  // namespace unisono
