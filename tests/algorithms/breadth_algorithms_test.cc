// The structure of the algorithms for many ranks and several hosts: what each file's prose claims.
// That their plans are right is the verifier's to prove.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "algorithms/hosts.h"
#include "algorithms/numbers.h"
#include "algorithms/registry.h"

namespace unisono {
namespace {

constexpr int32_t kMaxRanks = 33;

Plan plan_of(const std::string& algorithm, PlanRequest request) {
  Result<Plan> plan = build_plan(algorithm, request);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : Plan{};
}

// Bytes in blocks.
struct Counts {
  int32_t steps = 0, messages = 0, sent = 0, received = 0;
  bool operator==(const Counts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  return out << counts.steps << " steps, " << counts.messages << " messages, " << counts.sent
             << " blocks sent, " << counts.received << " received";
}
Counts counts_of(const Plan& plan) {
  Counts counts;
  for (const Lane& lane : plan.lanes)
    for (const Step& step : lane.steps) {
      ++counts.steps;
      counts.messages += step.forward >= 0 ? 1 : 0;
      counts.sent += step.forward >= 0 ? step.length.blocks : 0;
      for (const Operand& source : step.sources)
        counts.received += source.receive ? step.length.blocks : 0;
    }
  return counts;
}

// v: the rank relative to the root.
Counts counts(const char* algorithm, Collective collective, int32_t n, int32_t v) {
  const int32_t root = has_root(collective) ? n / 3 : 0;
  return counts_of(plan_of(
      algorithm, {.collective = collective, .ranks = n, .rank = (v + root) % n, .root = root}));
}

template <class Visit>
void for_each_rank(Visit visit) {  // visit(n, v)
  for (int32_t n = 2; n <= kMaxRanks; ++n)
    for (int32_t v = 0; v < n; ++v) {
      SCOPED_TRACE(std::to_string(n) + " ranks, v " + std::to_string(v));
      visit(n, v);
    }
}

TEST(BinaryTree, StepsAndBytesAreItsProse) {
  for_each_rank([](int32_t n, int32_t v) {
    const int32_t c = std::clamp(n - 2 * v - 1, 0, 2), up = v == 0 ? 0 : 1;
    const char* const name = "binary_tree";
    EXPECT_EQ(counts(name, Collective::kBroadcast, n, v), (Counts{c + up, c, c, up}));
    EXPECT_EQ(counts(name, Collective::kReduce, n, v), (Counts{1, up, up, c}));
    for (Collective collective : {Collective::kAllReduce, Collective::kBarrier})
      EXPECT_EQ(counts(name, collective, n, v), (Counts{1 + up + c, up + c, up + c, up + c}));
  });
}

TEST(DoubleBinaryTree, EveryRankSendsAndReceivesTheVectorAboutOnceEachWay) {
  for_each_rank([](int32_t n, int32_t v) {
    const char* const name = "double_binary_tree";  // 2 blocks
    const Counts down = counts(name, Collective::kBroadcast, n, v);
    EXPECT_EQ(down.received, v == 0 ? 0 : 2);
    EXPECT_LE(down.sent, 2);
    const Counts up = counts(name, Collective::kReduce, n, v);
    EXPECT_EQ(up.steps, 2);
    EXPECT_EQ(up.sent, v == 0 ? 0 : 2);
    EXPECT_LE(up.received, 2);
    const Counts both = counts(name, Collective::kAllReduce, n, v);
    EXPECT_LE(both.sent, 4);
    EXPECT_LE(both.received, 4);
  });
}

// Parents in tree 0 or 1 of a broadcast, read off the plans: -1 at its root.
std::vector<int32_t> parents_of(int32_t n, int32_t root, int32_t tree) {
  std::vector<int32_t> parents;
  for (int32_t rank = 0; rank < n; ++rank) {
    const Plan plan =
        plan_of("double_binary_tree",
                {.collective = Collective::kBroadcast, .ranks = n, .rank = rank, .root = root});
    parents.push_back(-1);
    for (const ChannelId& id : plan.channels)
      if (id.reader == rank && id.number / 2 == tree) parents.back() = id.writer;
  }
  return parents;
}

TEST(DoubleBinaryTree, NoRankIsAnInnerNodeOfBothTreesAndBothAreShallow) {
  for (int32_t n = 2; n <= 130; n += n < 40 ? 1 : 9) {
    const int32_t root = n / 3;
    std::set<int32_t> inner[2];
    for (int32_t tree = 0; tree < 2; ++tree) {
      const std::vector<int32_t> parents = parents_of(n, root, tree);
      for (int32_t rank = 0; rank < n; ++rank) {
        int32_t depth = 0;
        for (int32_t at = rank; at != root; at = parents[static_cast<size_t>(at)]) {
          ASSERT_GE(at, 0);
          ASSERT_LE(++depth, n) << "a circle";
        }
        EXPECT_LE(depth, 1 + floor_log2(std::max(n - 1, 1))) << n << " ranks";
        const int32_t parent = parents[static_cast<size_t>(rank)];
        if (rank != root && parent != root) inner[tree].insert(parent);
      }
    }
    for (int32_t rank : inner[0]) EXPECT_FALSE(inner[1].contains(rank)) << n << " ranks";
  }
}

TEST(RecursiveHalving, StepsAndBytesAreItsProse) {
  for_each_rank([](int32_t n, int32_t v) {
    const char* const name = "recursive_halving";
    const int32_t p = power_of_two_below(n), phases = floor_log2(n), moved = p - 1;
    const bool paired = v < 2 * (n - p), excess = paired && v % 2 == 1;
    const int32_t extra = paired ? 1 : 0;
    EXPECT_EQ(counts(name, Collective::kAllReduce, n, v),
              excess ? (Counts{2, 1, p, p})
                     : (Counts{4 * phases + 2 * extra, 2 * phases + extra, 2 * moved + extra * p,
                               2 * moved + extra * p}));
    const Counts reduce = counts(name, Collective::kReduce, n, v);
    const Counts scatter = counts(name, Collective::kReduceScatter, n, v);
    if (excess) {
      EXPECT_EQ(reduce, (Counts{1, 1, p, 0}));
      EXPECT_EQ(scatter, (Counts{2, 1, n, 1}));
      return;
    }
    EXPECT_LE(reduce.steps, 3 * phases + extra);
    if (v == 0) {
      EXPECT_EQ(reduce, (Counts{3 * phases + extra, phases, moved, 2 * moved + extra * p}));
    }
    EXPECT_EQ(scatter.steps, 2 * phases + 3 * extra);
    if (p == n) {
      EXPECT_EQ(scatter, (Counts{2 * phases, phases, moved, moved}));
    }
  });
}

TEST(Circulant, StepsAndBytesAreItsProse) {
  for_each_rank([](int32_t n, int32_t v) {
    const int32_t phases = ceil_log2(n), copies = power_of_two_below(n) == n ? 0 : 1;
    EXPECT_EQ(counts("circulant", Collective::kReduceScatter, n, v),
              (Counts{2 * phases + copies, phases, n - 1, n - 1}));
    EXPECT_EQ(counts("circulant", Collective::kAllReduce, n, v),
              (Counts{4 * phases + copies, 2 * phases, 2 * (n - 1), 2 * (n - 1)}));
  });
}

TEST(Bruck, StepsAndBytesAreItsProse) {
  for_each_rank([](int32_t n, int32_t v) {
    const int32_t phases = ceil_log2(n);
    EXPECT_EQ(counts("bruck", Collective::kAllGather, n, v),
              (Counts{2 * phases, phases, n - 1, n - 1}));
    int32_t moved = 0;
    for (int32_t d = 1; d < n; ++d) moved += __builtin_popcount(static_cast<unsigned>(d));
    const Counts all_to_all = counts("bruck", Collective::kAllToAll, n, v);
    EXPECT_EQ(all_to_all.messages, phases);
    EXPECT_EQ(all_to_all.sent, moved);
    EXPECT_EQ(all_to_all.received, moved);
    EXPECT_LE(all_to_all.steps, 2 * n + 3 * phases + 1);
  });
}

TEST(Pat, StepsAndBytesAreItsProse) {
  for_each_rank([](int32_t n, int32_t v) {
    const int32_t phases = ceil_log2(n);
    for (Collective collective : {Collective::kAllGather, Collective::kReduceScatter})
      EXPECT_EQ(counts("pat", collective, n, v), (Counts{n + 2 * phases, phases, n - 1, n - 1}));
  });
}

TEST(Pat, FarMessagesCarryFewBlocks) {
  for (int32_t n = 2; n <= kMaxRanks; ++n)
    for (Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
      const Plan plan = plan_of("pat", {.collective = collective, .ranks = n});
      for (const Lane& lane : plan.lanes)
        for (const Step& step : lane.steps) {
          if (step.forward < 0) continue;
          const int32_t reader = plan.channels[static_cast<size_t>(step.forward)].reader;
          const int32_t distance = collective == Collective::kAllGather ? reader : n - reader;
          // One block for every multiple of 2 * distance that has room for another `distance`.
          EXPECT_EQ(step.length.blocks, (n - 1 - distance) / (2 * distance) + 1) << n;
        }
    }
}

TEST(ScatterAllgather, TheRootSendsTwiceTheVectorAndEverybodyReceivesItOnce) {
  for_each_rank([](int32_t n, int32_t v) {
    const Counts moved = counts("scatter_allgather", Collective::kBroadcast, n, v);
    EXPECT_EQ(moved.received, v == 0 ? 0 : n);
    EXPECT_LE(moved.sent, 2 * (n - 1));
    if (v > 0) return;
    const int32_t messages = ceil_log2(n) + n - 1;
    EXPECT_EQ(moved, (Counts{1 + messages, messages, 2 * (n - 1), 0}));
  });
}

TEST(HostMap, NumbersHostsByTheirLowestRanks) {
  const int32_t hosts[] = {9, 4, 4, 9, 4, 7};
  const HostMap map = host_map(hosts, 4);
  EXPECT_EQ(map.ranks, (std::vector<std::vector<int32_t>>{{0, 3}, {1, 2, 4}, {5}}));
  EXPECT_EQ(map.owners, 1);
  EXPECT_EQ(map.largest, 3);
  EXPECT_EQ(map.host, 1);
  EXPECT_EQ(map.index, 2);
  EXPECT_EQ(map.owner_on(2, 0), 5);
}

TEST(TwoLevel, NeedsSeveralHostsAndAHostOfSeveralRanks) {
  const Algorithm& row = *find_algorithm("two_level");
  const std::vector<std::vector<int32_t>> none = {{}, {0, 0, 0, 0}, {0, 1, 2, 3}, {0, 0, 1}};
  const std::vector<std::vector<int32_t>> some = {{0, 0, 0, 1}, {0, 1, 0, 1}, {2, 2, 1, 1}};
  for (Collective collective : {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce,
                                Collective::kGather, Collective::kScatter, Collective::kBarrier}) {
    for (const std::vector<int32_t>& hosts : none)
      EXPECT_FALSE(row.supports({.collective = collective, .ranks = 4, .hosts = hosts}));
    for (const std::vector<int32_t>& hosts : some)
      EXPECT_TRUE(row.supports({.collective = collective, .ranks = 4, .hosts = hosts}));
  }
  EXPECT_FALSE(row.supports({.collective = Collective::kAllToAll, .ranks = 4, .hosts = some[0]}));
}

// Blocks that leave each host, by host number 0 ... ; *blocks: of the vector.
std::vector<int32_t> blocks_leaving(Collective collective, const std::vector<int32_t>& hosts,
                                    int32_t root, int32_t* blocks) {
  std::vector<int32_t> leaving(static_cast<size_t>(*std::max_element(hosts.begin(), hosts.end())) +
                               1);
  for (int32_t rank = 0; rank < static_cast<int32_t>(hosts.size()); ++rank) {
    const Plan plan = plan_of("two_level", {.collective = collective,
                                            .ranks = static_cast<int32_t>(hosts.size()),
                                            .rank = rank,
                                            .root = root,
                                            .hosts = hosts});
    *blocks = plan.blocks;
    const int32_t here = hosts[static_cast<size_t>(rank)];
    for (const Lane& lane : plan.lanes)
      for (const Step& step : lane.steps) {
        if (step.forward < 0) continue;
        const int32_t reader = plan.channels[static_cast<size_t>(step.forward)].reader;
        if (hosts[static_cast<size_t>(reader)] != here)
          leaving[static_cast<size_t>(here)] += step.length.blocks;
      }
  }
  return leaving;
}

TEST(TwoLevel, WhatCrossesBetweenHostsDoesSoOnceAHost) {
  const std::vector<std::vector<int32_t>> maps = {
      {0, 0, 0, 1, 1}, {0, 1, 1, 1, 1}, {0, 0, 1, 1, 2}, {0, 1, 2, 0, 1, 2, 0, 1}, {1, 0, 0, 1, 1}};
  for (const std::vector<int32_t>& hosts : maps) {
    const int32_t count = *std::max_element(hosts.begin(), hosts.end()) + 1;
    int32_t blocks = 0;
    for (int32_t leaving : blocks_leaving(Collective::kAllReduce, hosts, 0, &blocks))
      EXPECT_EQ(leaving * count, 2 * (count - 1) * blocks);  // 2 (H-1)/H of the vector
    // Every block reaches every other host once, or every other host's partial sum of it leaves.
    for (Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
      const std::vector<int32_t> leaving = blocks_leaving(collective, hosts, 0, &blocks);
      EXPECT_EQ(std::accumulate(leaving.begin(), leaving.end(), 0), (count - 1) * blocks);
    }
    for (int32_t root = 0; root < static_cast<int32_t>(hosts.size()); ++root)
      for (Collective collective : {Collective::kBroadcast, Collective::kReduce}) {
        int32_t all = 0;
        for (int32_t leaving : blocks_leaving(collective, hosts, root, &blocks)) {
          EXPECT_TRUE(leaving == 0 || leaving == blocks);
          all += leaving;
        }
        EXPECT_EQ(all, (count - 1) * blocks);
      }
  }
}

// Messages that leave each host, and those that the root takes or sends.
TEST(TwoLevel, ABarrierCrossesOnceAHostAndWayAndARootHandlesAMessageAHost) {
  const std::vector<int32_t> hosts = {0, 0, 0, 1, 1, 2, 2, 2};
  for (Collective collective : {Collective::kBarrier, Collective::kGather, Collective::kScatter})
    for (int32_t root : {0, 4}) {
      int32_t crossing = 0;
      for (int32_t rank = 0; rank < 8; ++rank) {
        const Plan plan = plan_of(
            "two_level",
            {.collective = collective, .ranks = 8, .rank = rank, .root = root, .hosts = hosts});
        for (const Lane& lane : plan.lanes)
          for (const Step& step : lane.steps) {
            if (step.forward < 0) continue;
            const int32_t reader = plan.channels[static_cast<size_t>(step.forward)].reader;
            if (hosts[static_cast<size_t>(reader)] != hosts[static_cast<size_t>(rank)]) ++crossing;
          }
      }
      EXPECT_EQ(crossing, collective == Collective::kBarrier ? 4 : 2)
          << collective_name(collective) << " root " << root;
    }
}

}  // namespace
}  // namespace unisono
