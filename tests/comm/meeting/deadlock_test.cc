// Which stalled ranks wait for each other for ever: found where it is so, and never where a message
// may be on its way or a rank may still come.
#include "comm/control/deadlock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/comm/meeting/control_testing.h"

namespace unisono {
namespace {

using Stalls = std::map<int32_t, StallReport>;
using Ranks = std::vector<int32_t>;

StallReport collective(uint64_t sequence, int32_t peer) {
  StallReport report;
  report.call = call(sequence, 1, 100);
  report.last = sequence;
  report.peer = peer;
  return report;
}
StallReport pairs(uint64_t last, std::vector<PairWait> waits, std::vector<PairTally> tallies = {}) {
  StallReport report;
  report.last = last;
  report.waits = std::move(waits);
  report.tallies = std::move(tallies);
  return report;
}
PairWait recv_from(int32_t peer, uint64_t ordinal) {
  return {true, peer, ordinal, DataType::kInt8, 1};
}
PairWait send_to(int32_t peer, uint64_t ordinal) {
  return {false, peer, ordinal, DataType::kInt8, 1};
}
PairWait recv_any() {
  return {true, -1, 0, DataType::kInt8, 1};
}
Ranks members(const Stalls& stalls, int32_t ranks) {
  Ranks found = control::find_deadlock(stalls, ranks);
  std::sort(found.begin(), found.end());
  return found;
}

TEST(DeadlockTest, ARecvAgainstACollectiveIsOne) {
  EXPECT_EQ(members({{0, pairs(6, {recv_from(1, 1)})}, {1, collective(7, 0)}}, 2), (Ranks{0, 1}));
}

TEST(DeadlockTest, ASendThatFindsNoRoomAgainstACollectiveIsOne) {
  EXPECT_EQ(members({{0, pairs(6, {send_to(1, 3)})}, {1, pairs(0, {})}}, 2), Ranks{});
  StallReport other = collective(7, 0);
  other.tallies = {{0, 0, 2, 0}};
  EXPECT_EQ(members({{0, pairs(6, {send_to(1, 3)})}, {1, other}}, 2), (Ranks{0, 1}));
  other.tallies = {{0, 0, 3, 0}};  // it was received: news of it are on their way
  EXPECT_EQ(members({{0, pairs(6, {send_to(1, 3)})}, {1, other}}, 2), Ranks{});
}

TEST(DeadlockTest, AMessageThatWasSentIsOnItsWay) {
  StallReport sender = collective(7, 0);
  sender.tallies = {{0, 1, 0, 0}};
  EXPECT_EQ(members({{0, pairs(6, {recv_from(1, 1)})}, {1, sender}}, 2), Ranks{});
  EXPECT_EQ(members({{0, pairs(6, {recv_from(1, 2)})}, {1, sender}}, 2), (Ranks{0, 1}));
}

TEST(DeadlockTest, ARankThatIsNotStalledMayStillCome) {
  EXPECT_EQ(members({{0, pairs(6, {recv_from(1, 1)})}}, 2), Ranks{});
  EXPECT_EQ(members({{0, pairs(6, {recv_from(1, 1)})}, {1, collective(7, 2)}}, 3), Ranks{});
  EXPECT_EQ(members({{0, pairs(6, {recv_from(1, 1)})}, {1, collective(7, -1)}, {2, {}}}, 3),
            (Ranks{0, 1}));
}

TEST(DeadlockTest, ARankThatHasIssuedTheCollectiveIsNotWaitedForByIt) {
  // Rank 0 is past collective 7: what rank 1 needs of it is on its way.
  EXPECT_EQ(members({{0, pairs(7, {recv_from(1, 1)})}, {1, collective(7, 0)}}, 2), Ranks{});
  EXPECT_EQ(members({{0, pairs(8, {recv_from(1, 1)})}, {1, collective(7, -1)}}, 2), Ranks{});
}

TEST(DeadlockTest, CollectivesAloneAreNone) {
  EXPECT_EQ(members({{0, collective(7, 1)}, {1, collective(7, 0)}}, 2), Ranks{});
  EXPECT_EQ(members({{0, collective(7, 1)}, {1, collective(6, 0)}}, 2), Ranks{});
  // Two of them that wait for each other hide the third from nobody and from nothing.
  const Stalls beside = {
      {0, collective(7, 1)}, {1, collective(7, 0)}, {2, pairs(6, {recv_from(0, 1)})}};
  EXPECT_EQ(members(beside, 3), Ranks{});
}

TEST(DeadlockTest, IsFoundThroughOtherRanksOfTheCollective) {
  // 3 waits in the collective for 2, that for 1, that for 0, which receives from 3.
  const Stalls chain = {{0, pairs(6, {recv_from(3, 1)})},
                        {1, collective(7, 0)},
                        {2, collective(7, 1)},
                        {3, collective(7, 2)}};
  EXPECT_EQ(control::find_deadlock(chain, 4), (Ranks{0, 3, 2, 1}));
}

TEST(DeadlockTest, IsFoundThroughSeveralReceives) {
  const Stalls ring = {{0, pairs(6, {recv_from(1, 1)})},
                       {1, pairs(6, {recv_from(2, 1)})},
                       {2, collective(7, 0)},
                       {3, collective(7, 2)}};
  EXPECT_EQ(control::find_deadlock(ring, 4), (Ranks{1, 2, 0}));  // first a recv and a collective
  EXPECT_EQ(members({{0, pairs(0, {recv_from(1, 1)})}, {1, pairs(0, {recv_from(0, 1)})}}, 2),
            (Ranks{0, 1}));
  // Sends of the same call are issued: an exchange is none.
  EXPECT_EQ(members({{0, pairs(0, {recv_from(1, 1)}, {{1, 1, 0, 1}})},
                     {1, pairs(0, {recv_from(0, 1)}, {{0, 1, 0, 1}})}},
                    2),
            Ranks{});
}

TEST(DeadlockTest, AnyUnfinishedPartOfAGroupOfTransfersKeepsItFromEnding) {
  // Rank 2, which is not stalled, may send; rank 1 cannot.
  const Stalls stalls = {{0, pairs(6, {recv_from(2, 1), recv_from(1, 1)})}, {1, collective(7, 0)}};
  EXPECT_EQ(members(stalls, 3), (Ranks{0, 1}));
}

TEST(DeadlockTest, AReceiveFromAnyRankNeedsAllOthersStuck) {
  Stalls stalls = {{0, pairs(6, {recv_any()})}, {1, collective(7, 0)}};
  EXPECT_EQ(members(stalls, 3), Ranks{});
  stalls[2] = collective(7, 0);
  EXPECT_EQ(members(stalls, 3), (Ranks{0, 1}));
  stalls[2].tallies = {{0, 1, 0, 0}};  // sent, not yet received
  EXPECT_EQ(members(stalls, 3), Ranks{});
  stalls[0].tallies = {{2, 0, 1, 0}};
  EXPECT_EQ(members(stalls, 3), (Ranks{0, 1}));
}

TEST(DeadlockTest, ASendWaitsForNobodyWhoReceivesIt) {
  const Stalls stalls = {{0, pairs(0, {send_to(1, 1)})},
                         {1, pairs(0, {recv_from(2, 1), recv_from(0, 1)}, {{0, 0, 0, 1}})},
                         {2, pairs(0, {recv_from(0, 1)})}};
  // 0 waits for 1, which takes its message; 1 for 2, 2 for 0. Nobody is stuck.
  EXPECT_EQ(members(stalls, 3), Ranks{});
}

TEST(DeadlockTest, WhatARankLeftOutIsNotTakenForNothing) {
  StallReport many = collective(7, 0);
  many.all_tallies = false;
  EXPECT_EQ(members({{0, pairs(6, {recv_from(1, 1)})}, {1, many}}, 2), Ranks{});
}

TEST(DeadlockTest, WhateverPeersReportTheSearchEndsWithACycleOrNothing) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto ranks = static_cast<int32_t>(1 + random() % 6);
    const auto any_rank = [&] { return static_cast<int32_t>(random() % 8) - 1; };
    Stalls stalls;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      if (random() % 8 == 0) continue;
      if (random() % 2 == 0) {
        stalls[rank] = collective(1 + random() % 2, any_rank());
      } else {
        stalls[rank] = pairs(random() % 3, {{random() % 2 == 0, any_rank(), random() % 3, {}, 1}});
      }
      stalls[rank].tallies = {{any_rank(), random() % 3, random() % 3, random() % 2}};
    }
    const Ranks cycle = control::find_deadlock(stalls, ranks);
    found += !cycle.empty();
    bool pair = cycle.empty();
    for (const int32_t rank : cycle) {
      ASSERT_EQ(stalls.count(rank), 1u);
      pair = pair || stalls[rank].call.sequence == 0;
    }
    EXPECT_TRUE(pair);
  }
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace unisono
