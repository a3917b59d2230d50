// The builder: what an algorithm may say, and what the builder adds to it.
#include "algorithms/builder.h"

#include <gtest/gtest.h>

#include "algorithms/awaits.h"

namespace unisono {
namespace {

PlanRequest request_of(Collective collective, int32_t ranks, int32_t rank, bool multicast = true) {
  return {.collective = collective, .ranks = ranks, .rank = rank, .multicast = multicast};
}

using Awaits = std::vector<Await>;

TEST(Builder, NumbersAChannelOnceHoweverOftenItIsNamed) {
  PlanBuilder plan("test", request_of(Collective::kAllReduce, 3, 0), 3);
  EXPECT_EQ(plan.to(1), plan.to(1));
  EXPECT_NE(plan.to(1), plan.to(1, 1));
  EXPECT_NE(plan.to(1), plan.to(2));
  EXPECT_NE(plan.to(1), plan.receive(1).channel);
  EXPECT_EQ(plan.receive(1), plan.receive(1));
  EXPECT_NE(plan.to_all(), plan.to(1));
  const Plan built = plan.finish(false, false);
  ASSERT_EQ(built.channels.size(), 5u);
  EXPECT_EQ(built.channels[0], (ChannelId{0, 0, 1}));
  EXPECT_EQ(built.channels[4], (ChannelId{0, 0, kAllButWriter}));
}

TEST(Builder, NamesTheOnlyOtherRankInsteadOfAllButTheWriter) {
  PlanBuilder plan("test", request_of(Collective::kAllReduce, 2, 0), 2);
  EXPECT_TRUE(plan.one_send_reaches_all());
  EXPECT_EQ(plan.to_all(), plan.to(1));
  EXPECT_EQ(plan.receive_shared(1), plan.receive(1));
}

TEST(Builder, CountsBlocksModuloTheBuffer) {
  PlanBuilder plan("test", request_of(Collective::kAllReduce, 4, 1), 4);
  EXPECT_EQ(plan.input(-1).first, 3);
  EXPECT_EQ(plan.output(5).first, 1);
  EXPECT_EQ(plan.after(-2), 3);
  EXPECT_EQ(plan.after(7), 0);
}

TEST(Builder, MakesTheLaterOfTwoConflictingStepsAwaitTheEarlier) {
  PlanBuilder plan("test", request_of(Collective::kAllReduce, 4, 0), 4);
  const int8_t a = plan.lane("a"), b = plan.lane("b");
  plan.step(a, {.sources = {plan.input(0)}, .forward = plan.to(1)});     // a.0 reads 0
  plan.step(a, {.sources = {plan.input(1)}, .forward = plan.to(1)});     // a.1 reads 1
  plan.step(b, {.sources = {plan.receive(1)}, .into = plan.output(1)});  // b.0 writes 1
  plan.step(b, {.sources = {plan.receive(2)}, .into = plan.output(2)});  // b.1 writes 2
  plan.step(a, {.sources = {plan.output(2)}, .forward = plan.to(1)});    // a.2 reads 2
  plan.step(a, {.sources = {plan.input(3)}, .forward = plan.to(1)});     // a.3 reads 3
  plan.step(b, {.sources = {plan.input(3)}, .forward = plan.to(3)});     // b.2 reads 3
  const Plan built = plan.finish(false, false);
  EXPECT_EQ(built.lanes[0].steps[0].awaits, Awaits{});
  EXPECT_EQ(built.lanes[1].steps[0].awaits, (Awaits{{0, 0, 1}}));  // in place: input 1 is output 1
  EXPECT_EQ(built.lanes[1].steps[1].awaits, Awaits{});             // nobody else used block 2
  EXPECT_EQ(built.lanes[0].steps[2].awaits, (Awaits{{1, 0, 1}}));
  EXPECT_EQ(built.lanes[0].steps[3].awaits, Awaits{});
  EXPECT_EQ(built.lanes[1].steps[2].awaits, Awaits{});  // two readers do not conflict
  const std::vector<std::pair<int8_t, int32_t>> order = {{0, 0}, {0, 1}, {1, 0}, {1, 1},
                                                         {0, 2}, {0, 3}, {1, 2}};
  EXPECT_EQ(built.order, order);
}

TEST(Builder, LeavesOutAwaitsThatEarlierOnesImply) {
  PlanBuilder plan("test", request_of(Collective::kAllReduce, 4, 0), 4);
  const int8_t a = plan.lane("a"), b = plan.lane("b");
  for (int32_t block = 0; block < 4; ++block)
    plan.step(a, {.sources = {plan.input(block)}, .forward = plan.to(1)});
  for (int32_t block : {2, 1, 3, 0})
    plan.step(b, {.sources = {plan.receive(2)}, .into = plan.output(block)});
  const Plan built = plan.finish(false, false);
  const std::vector<Step>& steps = built.lanes[1].steps;
  EXPECT_EQ(steps[0].awaits, (Awaits{{0, 0, 2}}));
  EXPECT_EQ(steps[1].awaits, Awaits{});
  EXPECT_EQ(steps[2].awaits, (Awaits{{0, 0, 3}}));
  EXPECT_EQ(steps[3].awaits, Awaits{});
}

TEST(Builder, SeesOverlapInTheInPlaceFormOfEachCollective) {
  struct Case {
    Collective collective;
    int32_t input, output;
    bool alias;
  };
  // Rank 1 of 4, root 1.
  const Case cases[] = {
      {Collective::kAllReduce, 2, 2, true},     {Collective::kAllReduce, 2, 1, false},
      {Collective::kReduce, 2, 2, true},        {Collective::kBroadcast, 2, 2, true},
      {Collective::kAllGather, 0, 1, true},     {Collective::kAllGather, 0, 0, false},
      {Collective::kGather, 0, 1, true},        {Collective::kGather, 0, 2, false},
      {Collective::kReduceScatter, 1, 0, true}, {Collective::kReduceScatter, 0, 0, false},
      {Collective::kScatter, 1, 0, true},       {Collective::kScatter, 2, 0, false},
      {Collective::kAllToAll, 1, 1, false},     {Collective::kBarrier, 0, 0, true},
  };
  for (const Case& one : cases) {
    PlanBuilder plan("test", {.collective = one.collective, .ranks = 4, .rank = 1, .root = 1}, 4);
    const int8_t a = plan.lane("a"), b = plan.lane("b");
    plan.step(a, {.sources = {plan.input(one.input)}, .forward = plan.to(2)});
    plan.step(b, {.sources = {plan.receive(2)}, .into = plan.output(one.output)});
    const Plan built = plan.finish(false, false);
    EXPECT_EQ(built.lanes[1].steps[0].awaits, one.alias ? (Awaits{{0, 0, 0}}) : Awaits{})
        << collective_name(one.collective) << " input " << one.input << " output " << one.output;
  }
}

TEST(Builder, GuardsScratchAgainstItsUseTwoRoundsBefore) {
  PlanBuilder plan("test", request_of(Collective::kAllGather, 4, 0));
  plan.pack_messages(2);
  const int8_t fill = plan.lane("fill"), drain = plan.lane("drain");
  plan.step(fill, {.sources = {plan.receive(1)}, .into = PlanBuilder::scratch(fill, 0)});
  plan.step(fill, {.sources = {plan.receive(2)}, .into = PlanBuilder::scratch(fill, 1)});
  plan.step(drain, {.sources = {PlanBuilder::scratch(fill, 0, 2)}, .forward = plan.to(1)});
  plan.step(drain, {.sources = {PlanBuilder::scratch(fill, 1)}, .forward = plan.to(1)});
  const Plan built = plan.finish(false, false);
  EXPECT_EQ(built.scratch_blocks, (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(built.lanes[0].steps[0].awaits, (Awaits{{1, 2, 0}}));
  EXPECT_EQ(built.lanes[0].steps[1].awaits, (Awaits{{1, 2, 1}}));
  EXPECT_EQ(built.lanes[1].steps[0].awaits, (Awaits{{0, 0, 1}}));
  EXPECT_EQ(built.lanes[1].steps[1].awaits, Awaits{});
}

TEST(Builder, NeedsNoGuardOfScratchWhereTheLanesMeetEveryRound) {
  PlanBuilder plan("test", request_of(Collective::kAllGather, 4, 0));
  const int8_t fill = plan.lane("fill"), drain = plan.lane("drain");
  plan.step(fill, {.sources = {plan.receive(1)}, .into = PlanBuilder::scratch(fill, 0)});
  plan.step(drain, {.sources = {PlanBuilder::scratch(fill, 0)}, .into = plan.output(3)});
  plan.step(fill, {.sources = {plan.output(3)}, .forward = plan.to(1)});
  const Plan built = plan.finish(false, false);
  EXPECT_EQ(built.lanes[0].steps[0].awaits, Awaits{});
  EXPECT_EQ(built.lanes[0].steps[1].awaits, (Awaits{{1, 0, 0}}));
}

TEST(Builder, RecordsRepeatsOfEveryLaneThatTheBodyAddsTo) {
  PlanBuilder plan("test", request_of(Collective::kAllToAll, 5, 2));
  const int8_t a = plan.lane("a"), b = plan.lane("b"), idle = plan.lane("idle");
  plan.step(a, {.sources = {plan.input(0)}, .into = plan.output(0)});
  plan.repeat(4, [&](int32_t i) {
    plan.step(a, {.sources = {plan.input(i)}, .forward = plan.to(plan.after(1 + i))});
    plan.step(b, {.sources = {plan.input(i)}, .into = plan.output(i)});
    plan.step(b, {.sources = {plan.input(i)}, .into = plan.output(i)});
  });
  plan.repeat(1,
              [&](int32_t) { plan.step(a, {.sources = {plan.input(0)}, .into = plan.output(0)}); });
  const Plan built = plan.finish(false, false);
  EXPECT_EQ(built.lanes[0].repeats, (std::vector<Repeat>{{1, 1, 4}}));
  EXPECT_EQ(built.lanes[1].repeats, (std::vector<Repeat>{{0, 2, 4}}));
  EXPECT_TRUE(built.lanes[static_cast<size_t>(idle)].repeats.empty());
  EXPECT_EQ(built.lanes[0].steps.size(), 6u);
  EXPECT_EQ(built.lanes[1].steps.size(), 8u);
}

TEST(Builder, TakesAStepsLengthFromTheUserMemoryItNames) {
  PlanBuilder plan("test", request_of(Collective::kAllReduce, 4, 0), 4);
  const int8_t a = plan.lane("a");
  plan.step(a, {.sources = {plan.receive(1)}, .into = plan.output(3)});
  plan.step(a, {.sources = {plan.receive(1)}, .forward = plan.to(2), .length = plan.output(2)});
  const Plan built = plan.finish(false, false);
  EXPECT_EQ(built.lanes[0].steps[0].length, (Chunk{Buffer::kOutput, 0, 3, 1}));
  EXPECT_EQ(built.lanes[0].steps[1].length, (Chunk{Buffer::kOutput, 0, 2, 1}));
}

TEST(Builder, SendsAPlainChunkToAllWithItsFirstSendDoingTheCopy) {
  for (const bool multicast : {true, false}) {
    PlanBuilder plan("test", request_of(Collective::kAllGather, 5, 1, multicast));
    const int8_t a = plan.lane("a");
    plan.step_to_all(a, {.sources = {plan.input(0)}, .into = plan.output(1)});
    const Plan built = plan.finish(false, false);
    EXPECT_EQ(built.lanes[0].steps.size(), multicast ? 1u : 4u);
    EXPECT_EQ(built.channels.size(), multicast ? 1u : 4u);
    EXPECT_TRUE(built.lanes[0].steps[0].has_destination);
    for (const Step& step : built.lanes[0].steps) EXPECT_GE(step.forward, 0);
  }
}

TEST(BuilderDeathTest, RefusesWhatThePlanMachineForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  PlanBuilder plan("test", request_of(Collective::kAllReduce, 4, 0), 4);
  const int8_t a = plan.lane("a"), b = plan.lane("b");
  const Chunk in = plan.input(0), out = plan.output(0);
  EXPECT_DEATH(plan.step(a, {.sources = {plan.receive(1), plan.receive(1)}, .into = out}),
               "adjacent_find");
  EXPECT_DEATH(plan.step(a, {.sources = {in}}), "has_destination");
  EXPECT_DEATH(plan.step(a, {.into = out}), "sources.empty");
  EXPECT_DEATH(plan.step(a, {.sources = {in}, .into = in}), "kInput");
  EXPECT_DEATH(plan.step(a, {.sources = {plan.input(0, 2)}, .into = out}), "length.blocks");
  EXPECT_DEATH(plan.step(a, {.sources = {plan.receive(1)}, .forward = plan.to(2)}), "has_value");
  EXPECT_DEATH(plan.step(a, {.sources = {plan.input(0, 2)}, .forward = plan.to(1)}),
               "message_blocks");
  EXPECT_DEATH((void)plan.to(0), "writer != id.reader");
  plan.step(a, {.sources = {in}, .forward = plan.to(1)});
  EXPECT_DEATH(plan.step(b, {.sources = {in}, .forward = plan.to(1)}), "owner == lane");
  plan.step(a, {.sources = {plan.receive(1)}, .into = out});
  EXPECT_DEATH(plan.step(b, {.sources = {plan.receive(1)}, .into = out}), "owner == lane");
  EXPECT_DEATH(plan.repeat(2, [&](int32_t) { plan.repeat(2, [](int32_t) {}); }), "repeating_");
  EXPECT_DEATH(plan.repeat(2,
                           [&](int32_t i) {
                             for (int32_t s = 0; s <= i; ++s)
                               plan.step(a, {.sources = {in}, .into = out});
                           }),
               "repeat_first_");
}

}  // namespace
}  // namespace unisono
