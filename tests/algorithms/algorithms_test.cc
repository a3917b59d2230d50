// The algorithms' structure: what each file's prose claims. That the plans are right is the
// verifier's to prove.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "algorithms/registry.h"

namespace unisono {
namespace {

constexpr int32_t kMaxRanks = 17;

Plan plan_of(const std::string& algorithm, PlanRequest request) {
  Result<Plan> plan = build_plan(algorithm, request);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : Plan{};
}

int32_t steps_of(const Plan& plan) {
  return static_cast<int32_t>(plan.order.size());
}

// In blocks; a multicast counts once.
int32_t blocks_sent(const Plan& plan) {
  int32_t blocks = 0;
  for (const Lane& lane : plan.lanes)
    for (const Step& step : lane.steps)
      if (step.forward >= 0) blocks += step.length.blocks;
  return blocks;
}

int32_t blocks_received(const Plan& plan) {
  int32_t blocks = 0;
  for (const Lane& lane : plan.lanes)
    for (const Step& step : lane.steps)
      for (const Operand& source : step.sources)
        if (source.receive) blocks += step.length.blocks;
  return blocks;
}

struct Counts {
  int32_t steps, sent, received;
  bool operator==(const Counts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  return out << counts.steps << " steps, " << counts.sent << " sent, " << counts.received
             << " received";
}
Counts counts_of(const Plan& plan) {
  return {steps_of(plan), blocks_sent(plan), blocks_received(plan)};
}

// Every supported (algorithm, collective, ranks, rank, root, multicast): all the ranks' plans at
// once. Powers of two, their neighbours and the small numbers; the counts below are checked for
// every number.
template <class Visit>
void for_each_plan(Visit visit) {
  for (const Algorithm& row : algorithms())
    for (int c = 0; c < kCollectives; ++c)
      for (int32_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17})
        for (int32_t root : std::set<int32_t>{0, n - 1})
          for (bool multicast : {false, true}) {
            PlanRequest request{.collective = static_cast<Collective>(c),
                                .ranks = n,
                                .root = root,
                                .multicast = multicast};
            if (!row.supports(request) || (!has_root(request.collective) && root != 0)) continue;
            std::vector<Plan> plans;
            for (request.rank = 0; request.rank < n; ++request.rank)
              plans.push_back(plan_of(row.name, request));
            for (request.rank = 0; request.rank < n; ++request.rank)
              visit(row, request, plans[static_cast<size_t>(request.rank)], plans);
          }
}

void expect_counts(const char* algorithm, Collective collective, int32_t n, int32_t v,
                   bool multicast, Counts expected) {
  // v: the rank relative to the root.
  const int32_t root = has_root(collective) ? n / 3 : 0;
  const PlanRequest request{.collective = collective,
                            .ranks = n,
                            .rank = (v + root) % n,
                            .root = root,
                            .multicast = multicast};
  EXPECT_EQ(counts_of(plan_of(algorithm, request)), expected)
      << algorithm << " " << collective_name(collective) << " " << n << " ranks, v " << v
      << (multicast ? ", multicast" : "");
}

TEST(Algorithms, EveryCollectiveHasOneForAnyNumberOfRanksAndRoot) {
  for (int c = 0; c < kCollectives; ++c)
    for (int32_t n = 1; n <= kMaxRanks; ++n) {
      const PlanRequest request{.collective = static_cast<Collective>(c), .ranks = n};
      EXPECT_TRUE(std::any_of(algorithms().begin(), algorithms().end(),
                              [&](const Algorithm& row) { return row.supports(request); }))
          << collective_name(request.collective) << " " << n;
    }
}

TEST(Algorithms, EveryReductionHasAReproducibleOne) {
  for (Collective collective :
       {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter}) {
    const PlanRequest request{.collective = collective, .ranks = 5};
    EXPECT_TRUE(std::any_of(algorithms().begin(), algorithms().end(), [&](const Algorithm& row) {
      return row.reproducible && row.supports(request);
    })) << collective_name(collective);
  }
}

TEST(Algorithms, PlansAreShapedAsTheirCollective) {
  for_each_plan([](const Algorithm& row, const PlanRequest& request, const Plan& plan,
                   const std::vector<Plan>&) {
    const std::string what = plan.algorithm + " " + collective_name(plan.collective) + " " +
                             std::to_string(plan.ranks) + "/" + std::to_string(plan.rank);
    ASSERT_EQ(plan.algorithm, row.name);
    ASSERT_EQ(plan.collective, request.collective) << what;
    ASSERT_EQ(plan.ranks, request.ranks) << what;
    ASSERT_EQ(plan.rank, request.rank) << what;
    ASSERT_EQ(plan.scratch_blocks.size(), plan.lanes.size()) << what;
    const bool at_root = request.rank == request.root;
    const bool no_input = !at_root && (plan.collective == Collective::kBroadcast ||
                                       plan.collective == Collective::kScatter);
    const bool no_output = !at_root && (plan.collective == Collective::kReduce ||
                                        plan.collective == Collective::kGather);
    ASSERT_EQ(plan.input_blocks == 0, no_input) << what;
    ASSERT_EQ(plan.output_blocks == 0, no_output) << what;
    ASSERT_LE(std::max(plan.input_blocks, plan.output_blocks), plan.blocks) << what;
    ASSERT_TRUE(plan.late || !row.late) << what;
    ASSERT_TRUE(!plan.reproducible || (row.reproducible && has_op(plan.collective))) << what;
    const bool may_share = request.multicast && plan.ranks > 2;
    for (const ChannelId& id : plan.channels)
      ASSERT_TRUE(id.reader != kAllButWriter || may_share) << what;
  });
}

TEST(Algorithms, RanksAgreeOnLanesBlocksAndPacking) {
  for_each_plan(
      [](const Algorithm&, const PlanRequest&, const Plan& plan, const std::vector<Plan>& plans) {
        const Plan& first = plans[0];
        ASSERT_EQ(plan.lanes.size(), first.lanes.size());
        for (size_t i = 0; i < plan.lanes.size(); ++i)
          ASSERT_EQ(plan.lanes[i].name, first.lanes[i].name);
        ASSERT_EQ(plan.blocks, first.blocks);
        ASSERT_EQ(plan.message_blocks, first.message_blocks);
        ASSERT_EQ(plan.late, first.late);
        ASSERT_EQ(plan.reproducible, first.reproducible);
      });
}

TEST(Algorithms, MessagesPackAsManyBlocksAsTheyClaim) {
  for_each_plan([](const Algorithm& row, const PlanRequest& request, const Plan& plan,
                   const std::vector<Plan>& plans) {
    if (request.rank != 0 || plan.ranks == 1) return;
    int32_t most = 0;
    for (const Plan& one : plans)
      for (const Lane& lane : one.lanes)
        for (const Step& step : lane.steps)
          if (step.forward >= 0) most = std::max(most, step.length.blocks);
    ASSERT_EQ(plan.message_blocks, most)
        << row.name << " " << collective_name(plan.collective) << " " << plan.ranks;
  });
}

TEST(Algorithms, MarkFinalExactlyWhereAReductionsOutputComesToBe) {
  // Over all ranks, each block of a reduction gets one final step, or one a rank that computes it
  // for itself.
  for (const Algorithm& row : algorithms())
    for (int c = 0; c < kCollectives; ++c)
      for (int32_t n = 1; n <= kMaxRanks; ++n) {
        PlanRequest request{.collective = static_cast<Collective>(c), .ranks = n, .root = n / 2};
        if (!row.supports(request)) continue;
        int32_t finals = 0;
        int32_t blocks = 1;
        for (request.rank = 0; request.rank < n; ++request.rank) {
          const Plan plan = plan_of(row.name, request);
          blocks = plan.blocks;
          for (const Lane& lane : plan.lanes)
            for (const Step& step : lane.steps) finals += step.final ? step.length.blocks : 0;
        }
        const std::string what = std::string(row.name) + " " + collective_name(request.collective) +
                                 " " + std::to_string(n);
        if (has_op(request.collective)) {
          EXPECT_GE(finals, blocks) << what;
          EXPECT_LE(finals, std::max(n, blocks)) << what;
        } else if (request.collective != Collective::kBarrier) {
          EXPECT_EQ(finals, 0) << what;
        }
      }
}

TEST(Algorithms, AReproduciblePlanFoldsAllRanksInOrderInOneStep) {
  for_each_plan(
      [](const Algorithm&, const PlanRequest&, const Plan& plan, const std::vector<Plan>&) {
        if (!plan.reproducible || plan.ranks == 1) return;
        int32_t folds = 0;
        for (const Lane& lane : plan.lanes)
          for (const Step& step : lane.steps) {
            if (step.sources.size() == 1) continue;
            ++folds;
            ASSERT_TRUE(step.final);
            ASSERT_EQ(static_cast<int32_t>(step.sources.size()), plan.ranks);
            for (int32_t rank = 0; rank < plan.ranks; ++rank) {
              const Operand& source = step.sources[static_cast<size_t>(rank)];
              ASSERT_EQ(source.receive, rank != plan.rank);
              const int32_t from =
                  source.receive ? plan.channels[static_cast<size_t>(source.channel)].writer : rank;
              ASSERT_EQ(from, rank);
              ASSERT_TRUE(source.receive || source.chunk.buffer == Buffer::kInput);
            }
          }
        ASSERT_LE(folds, 1);
      });
}

TEST(Algorithms, WhatOneRankSendsAnotherReceives) {
  for (const Algorithm& row : algorithms())
    for (int c = 0; c < kCollectives; ++c)
      for (int32_t n = 2; n <= kMaxRanks; ++n)
        for (bool multicast : {false, true}) {
          PlanRequest request{.collective = static_cast<Collective>(c),
                              .ranks = n,
                              .root = n - 1,
                              .multicast = multicast};
          if (!row.supports(request)) continue;
          std::vector<std::pair<ChannelId, int32_t>> sent, received;
          for (request.rank = 0; request.rank < n; ++request.rank) {
            const Plan plan = plan_of(row.name, request);
            const auto id = [&](int16_t index) {
              return plan.channels[static_cast<size_t>(index)];
            };
            for (const Lane& lane : plan.lanes)
              for (const Step& step : lane.steps) {
                if (step.forward >= 0) {
                  const bool to_all = id(step.forward).reader == kAllButWriter;
                  for (int32_t i = 0; i < (to_all ? n - 1 : 1); ++i)
                    sent.emplace_back(id(step.forward), step.length.blocks);
                }
                for (const Operand& source : step.sources)
                  if (source.receive) received.emplace_back(id(source.channel), step.length.blocks);
              }
          }
          std::sort(sent.begin(), sent.end());
          std::sort(received.begin(), received.end());
          EXPECT_EQ(sent, received)
              << row.name << " " << collective_name(request.collective) << " " << n;
        }
}

TEST(Algorithms, OneRankCopiesItsInputToItsOutput) {
  for (const Algorithm& row : algorithms())
    for (int c = 0; c < kCollectives; ++c) {
      const PlanRequest request{.collective = static_cast<Collective>(c)};
      if (!row.supports(request)) continue;
      const Plan plan = plan_of(row.name, request);
      EXPECT_EQ(counts_of(plan), (Counts{1, 0, 0})) << row.name;
      EXPECT_TRUE(plan.channels.empty());
      EXPECT_EQ(plan.lanes[0].steps[0].final, has_op(request.collective));
    }
}

TEST(OneShot, StepsAndBytesAreItsProse) {
  for (int32_t n = 2; n <= kMaxRanks; ++n)
    for (int32_t v = 0; v < n; ++v)
      for (bool multicast : {false, true}) {
        const int32_t sends = multicast ? 1 : n - 1;
        const char* const name = "one_shot";
        for (Collective collective : {Collective::kAllReduce, Collective::kBarrier})
          expect_counts(name, collective, n, v, multicast, {sends + 1, sends, n - 1});
        expect_counts(name, Collective::kReduce, n, v, multicast,
                      v == 0 ? Counts{1, 0, n - 1} : Counts{1, 1, 0});
        expect_counts(name, Collective::kAllGather, n, v, multicast, {sends + n - 1, sends, n - 1});
        expect_counts(name, Collective::kGather, n, v, multicast,
                      v == 0 ? Counts{n, 0, n - 1} : Counts{1, 1, 0});
      }
}

TEST(Direct, StepsAndBytesAreItsProse) {
  for (int32_t n = 2; n <= kMaxRanks; ++n)
    for (int32_t v = 0; v < n; ++v)
      for (bool multicast : {false, true}) {
        const bool one_send = multicast || n == 2;
        const int32_t sends = one_send ? 1 : n - 1;
        const char* const name = "direct";
        expect_counts(name, Collective::kAllReduce, n, v, multicast,
                      {2 * (n - 1) + 1 + (one_send ? 0 : n - 1), n - 1 + sends, 2 * (n - 1)});
        expect_counts(name, Collective::kReduceScatter, n, v, multicast, {n, n - 1, n - 1});
        expect_counts(name, Collective::kReduce, n, v, multicast,
                      v == 0 ? Counts{2 * n - 1, n - 1, 2 * (n - 1)} : Counts{n, n, n - 1});
        expect_counts(name, Collective::kAllGather, n, v, multicast, {sends + n - 1, sends, n - 1});
        expect_counts(name, Collective::kBroadcast, n, v, multicast,
                      v == 0 ? Counts{sends, sends, 0} : Counts{1, 0, 1});
        expect_counts(name, Collective::kGather, n, v, multicast,
                      v == 0 ? Counts{n, 0, n - 1} : Counts{1, 1, 0});
        expect_counts(name, Collective::kScatter, n, v, multicast,
                      v == 0 ? Counts{n, n - 1, 0} : Counts{1, 0, 1});
      }
}

TEST(Direct, AllReduceHasThreeLanes) {
  const Plan plan = plan_of("direct", {.collective = Collective::kAllReduce, .ranks = 4});
  ASSERT_EQ(plan.lanes.size(), 3u);
  EXPECT_EQ(plan.lanes[0].name, "copy-in");
  EXPECT_EQ(plan.lanes[1].name, "reduce");
  EXPECT_EQ(plan.lanes[2].name, "copy-out");
  EXPECT_EQ(plan.lanes[1].steps.size(), 1u);
  EXPECT_EQ(plan.blocks, 4);
}

TEST(Ring, StepsAndBytesAreItsProse) {
  for (int32_t n = 2; n <= kMaxRanks; ++n)
    for (int32_t v = 0; v < n; ++v)
      for (bool multicast : {false, true}) {
        const char* const name = "ring";
        expect_counts(name, Collective::kAllReduce, n, v, multicast,
                      {2 * n, 2 * (n - 1), 2 * (n - 1)});
        for (Collective collective : {Collective::kReduceScatter, Collective::kAllGather})
          expect_counts(name, collective, n, v, multicast, {n, n - 1, n - 1});
      }
}

TEST(Chain, StepsAndBytesAreItsProse) {
  for (int32_t n = 2; n <= kMaxRanks; ++n)
    for (int32_t v = 0; v < n; ++v) {
      expect_counts("chain", Collective::kBroadcast, n, v, true,
                    {1, v == n - 1 ? 0 : 1, v == 0 ? 0 : 1});
      expect_counts("chain", Collective::kReduce, n, v, true, {1, v == 0 ? 0 : 1, v == 1 ? 0 : 1});
    }
}

// Children of v in a binomial tree of n, by the definition of a parent.
std::vector<int32_t> children_of(int32_t v, int32_t n) {
  std::vector<int32_t> children;
  for (int32_t other = 1; other < n; ++other)
    if ((other & (other - 1)) == v) children.push_back(other);
  return children;
}
int32_t span_of(int32_t v, int32_t n) {
  int32_t span = 1;
  for (int32_t child : children_of(v, n)) span += span_of(child, n);
  return span;
}

TEST(BinomialTree, StepsAndBytesAreItsProse) {
  for (int32_t n = 2; n <= kMaxRanks; ++n)
    for (int32_t v = 0; v < n; ++v)
      for (bool multicast : {false, true}) {
        const int32_t children = static_cast<int32_t>(children_of(v, n).size());
        const int32_t span = span_of(v, n);
        const int32_t has_parent = v == 0 ? 0 : 1;
        const char* const name = "binomial_tree";
        expect_counts(name, Collective::kBroadcast, n, v, multicast,
                      {children + has_parent, children, has_parent});
        expect_counts(name, Collective::kReduce, n, v, multicast, {1, has_parent, children});
        for (Collective collective : {Collective::kAllReduce, Collective::kBarrier})
          expect_counts(name, collective, n, v, multicast,
                        {1 + has_parent + children, has_parent + children, has_parent + children});
        const bool leaf = children == 0;
        expect_counts(name, Collective::kGather, n, v, multicast,
                      {leaf ? 1 : 1 + children + has_parent, has_parent * span, span - 1});
        expect_counts(name, Collective::kScatter, n, v, multicast,
                      {leaf ? 1 : 1 + children + has_parent, span - 1, has_parent * span});
      }
}

TEST(RecursiveDoubling, StepsAndBytesAreItsProse) {
  for (int32_t n = 2; n <= kMaxRanks; ++n) {
    int32_t phases = 0;
    while ((2 << phases) <= n) ++phases;
    const int32_t excess = n - (1 << phases);
    for (int32_t v = 0; v < n; ++v)
      for (bool multicast : {false, true}) {
        const char* const name = "recursive_doubling";
        const bool paired = v < 2 * excess;
        Counts counts{1 + phases, phases, phases};
        if (paired) counts = {1 + phases, phases + 1, phases + 1};
        if (paired && v % 2 == 1) counts = {2, 1, 1};
        for (Collective collective : {Collective::kAllReduce, Collective::kBarrier})
          expect_counts(name, collective, n, v, multicast, counts);
        if (excess == 0)
          expect_counts(name, Collective::kAllGather, n, v, multicast, {2 * phases, n - 1, n - 1});
      }
  }
}

TEST(Pairwise, StepsAndBytesAreItsProse) {
  for (int32_t n = 2; n <= kMaxRanks; ++n)
    for (int32_t v = 0; v < n; ++v) {
      expect_counts("pairwise", Collective::kAllToAll, n, v, true, {2 * (n - 1) + 1, n - 1, n - 1});
      expect_counts("pairwise", Collective::kReduceScatter, n, v, true,
                    {2 * (n - 1), n - 1, n - 1});
    }
}

TEST(Costs, ArePositiveAndWireBytesAreThoseOfThePlans) {
  for (const Algorithm& row : algorithms())
    for (int c = 0; c < kCollectives; ++c)
      for (int32_t n = 1; n <= kMaxRanks; ++n)
        for (bool multicast : {false, true}) {
          PlanRequest request{
              .collective = static_cast<Collective>(c), .ranks = n, .multicast = multicast};
          if (!row.supports(request)) continue;
          const std::string what = std::string(row.name) + " " +
                                   collective_name(request.collective) + " " + std::to_string(n);
          const Cost cost = row.cost(request);
          double wire = 0;  // of the busiest rank
          for (request.rank = 0; request.rank < n; ++request.rank) {
            const Plan plan = plan_of(row.name, request);
            wire = std::max(
                wire, static_cast<double>(std::max(blocks_sent(plan), blocks_received(plan))) /
                          plan.blocks);
          }
          EXPECT_GT(cost.messages + cost.copy_bytes, 0) << what;
          EXPECT_EQ(cost.messages > 0, n > 1) << what;
          EXPECT_EQ(cost.reduce_bytes > 0, n > 1 && (has_op(request.collective) ||
                                                     request.collective == Collective::kBarrier))
              << what;
          // Without pipelining the critical path may be longer than any one rank's part of it.
          EXPECT_GE(cost.wire_bytes, wire - 1e-9) << what;
          EXPECT_LE(cost.wire_bytes, row.pipelines ? wire + 1e-9 : wire + 1 + 1e-9) << what;
        }
}

TEST(Registry, FindsByNameOnly) {
  for (const Algorithm& row : algorithms()) {
    ASSERT_NE(find_algorithm(row.name), nullptr);
    EXPECT_STREQ(find_algorithm(row.name)->name, row.name);
    EXPECT_GT(std::string(row.paper).size(), 0u);
  }
  EXPECT_EQ(find_algorithm("rings"), nullptr);
  EXPECT_EQ(find_algorithm(""), nullptr);
}

TEST(Registry, AnErrorNamesTheAlternatives) {
  const Result<Plan> unknown = build_plan("magic", {});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().code(), Code::kInvalidArgument);
  for (const Algorithm& row : algorithms())
    EXPECT_NE(unknown.status().message().find(row.name), std::string::npos);

  const Result<Plan> unsupported =
      build_plan("ring", {.collective = Collective::kAllToAll, .ranks = 5});
  ASSERT_FALSE(unsupported.ok());
  EXPECT_EQ(unsupported.status().code(), Code::kInvalidArgument);
  const std::string& message = unsupported.status().message();
  for (const char* word : {"ring", "all_to_all", "5 ranks", "pairwise"})
    EXPECT_NE(message.find(word), std::string::npos) << message;
  EXPECT_EQ(message.find("direct"), std::string::npos) << message;

  const Result<Plan> odd =
      build_plan("recursive_doubling", {.collective = Collective::kAllGather, .ranks = 6});
  ASSERT_FALSE(odd.ok());
  EXPECT_NE(odd.status().message().find("direct"), std::string::npos);
}

TEST(Registry, RefusesRanksAndRootsThatDoNotExist) {
  for (const PlanRequest& request :
       {PlanRequest{.ranks = 0}, PlanRequest{.ranks = -3}, PlanRequest{.ranks = 2, .rank = 2},
        PlanRequest{.ranks = 2, .rank = -1}, PlanRequest{.ranks = 2, .root = 2},
        PlanRequest{.ranks = 2, .root = -1}})
    EXPECT_EQ(build_plan("direct", request).status().code(), Code::kInvalidArgument);
}

TEST(Algorithms, PlansOfThousandsOfRanksAreBuiltInLinearTime) {
  // A quadratic builder would need 4e8 comparisons here, and the test's time limit would tell.
  const int32_t n = 10000;
  for (const char* name : {"ring", "direct"}) {
    const Plan plan =
        plan_of(name, {.collective = Collective::kAllReduce, .ranks = n, .rank = 4321});
    EXPECT_GE(steps_of(plan), 2 * n - 1) << name;
  }
}

}  // namespace
}  // namespace unisono
