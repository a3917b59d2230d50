// Groups and point-to-point: one thread owning several ranks, sends and receives of a pair that
// cannot block each other, sends to oneself, receives from anybody; communicators beside and out of
// each other.
#include <numeric>
#include <set>

#include "tests/comm/collective_case.h"

namespace unisono::testing {
namespace {

class Groups : public ::testing::TestWithParam<std::string> {};
std::string name(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

TEST_P(Groups, LetOneThreadDriveAllRanks) {
  const int ranks = 4;
  const Ranks world(ranks, {GetParam()});
  ASSERT_TRUE(world.ok());
  for (const Kind kind :
       {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter, Kind::kBroadcast}) {
    const Case c{kind, uniInt32, uniSum, 100'003, 2, false};
    std::vector<CaseRun> runs;
    for (int r = 0; r < ranks; r++) runs.emplace_back(c, r, ranks);
    UNI_OK(uniGroupStart());
    for (int r = 0; r < ranks; r++) UNI_OK(runs[static_cast<size_t>(r)].call(world[r], nullptr));
    UNI_OK(uniGroupEnd());
    for (CaseRun& run : runs) EXPECT_EQ(run.wrong(), "") << c.text();
  }
}

TEST_P(Groups, LetOneThreadDriveAllRanksOnOneStream) {
  const int ranks = 3;
  const Ranks world(ranks, {GetParam()});
  ASSERT_TRUE(world.ok());
  uniStream_t stream = nullptr;
  UNI_OK(uniStreamCreate(&stream));
  const Case c{Kind::kAllReduce, uniFloat64, uniSum, 7777, 0, false};
  std::vector<CaseRun> runs;
  for (int r = 0; r < ranks; r++) runs.emplace_back(c, r, ranks);
  UNI_OK(uniGroupStart());
  for (int r = 0; r < ranks; r++) UNI_OK(runs[static_cast<size_t>(r)].call(world[r], stream));
  UNI_OK(uniGroupEnd());
  UNI_OK(uniStreamSynchronize(stream));
  for (CaseRun& run : runs) EXPECT_EQ(run.wrong(), "");
  UNI_OK(uniStreamDestroy(stream));
}

TEST_P(Groups, OfLargeSendsAndReceivesDoNotBlockEachOther) {
  const Ranks world(3, {GetParam()});
  ASSERT_TRUE(world.ok());
  const size_t count = 1'500'001;  // many slots long
  world.run([&](int rank, uniComm_t comm) {
    std::vector<std::vector<int32_t>> out(3), in(3);
    UNI_OK(uniGroupStart());
    for (int peer = 0; peer < 3; peer++) {  // all pairs, oneself included
      auto& mine = out[static_cast<size_t>(peer)];
      mine.resize(count);
      std::iota(mine.begin(), mine.end(), rank * 1000 + peer);
      in[static_cast<size_t>(peer)].resize(count);
      UNI_OK(uniSend(mine.data(), count, uniInt32, peer, comm, nullptr));
      UNI_OK(uniRecv(in[static_cast<size_t>(peer)].data(), count, uniInt32, peer, comm, nullptr));
    }
    UNI_OK(uniGroupEnd());
    for (int peer = 0; peer < 3; peer++) {
      const auto& got = in[static_cast<size_t>(peer)];
      EXPECT_EQ(got.front(), peer * 1000 + rank);
      EXPECT_EQ(got.back(), peer * 1000 + rank + static_cast<int32_t>(count) - 1);
    }
  });
}

TEST_P(Groups, MatchSendsAndReceivesOfAPairInOrder) {
  const Ranks world(2, {GetParam()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    for (int i = 0; i < 100; i++) {
      int32_t value = i;
      if (rank == 0) {
        UNI_OK(uniSend(&value, 1, uniInt32, 1, comm, nullptr));
      } else {
        value = -1;
        UNI_OK(uniRecv(&value, 1, uniInt32, 0, comm, nullptr));
        EXPECT_EQ(value, i);
      }
      if (i % 10 == 0) UNI_OK(uniBarrier(comm, nullptr));
    }
    int empty = 0;
    UNI_OK(rank == 0 ? uniSend(&empty, 0, uniInt32, 1, comm, nullptr)
                     : uniRecv(&empty, 0, uniInt32, 0, comm, nullptr));
  });
}

TEST_P(Groups, ReceiveFromAnybodyTakesEachMessageOnceAndNamesItsSource) {
  const int ranks = 4;
  const Ranks world(ranks, {GetParam()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    if (rank != 0) {
      const std::vector<int32_t> mine(300'000, rank * 7);
      UNI_OK(uniSend(mine.data(), mine.size(), uniInt32, 0, comm, nullptr));
      return;
    }
    std::set<int> sources;
    for (int i = 1; i < ranks; i++) {
      std::vector<int32_t> got(300'000, -1);
      int source = -1;
      UNI_OK(uniRecvAny(got.data(), got.size(), uniInt32, &source, comm, nullptr));
      sources.insert(source);
      EXPECT_EQ(got.front(), source * 7);
      EXPECT_EQ(got.back(), source * 7);
    }
    EXPECT_EQ(sources, (std::set<int>{1, 2, 3}));
  });
}

TEST_P(Groups, MixCollectivesAndTransfersInProgramOrder) {
  const Ranks world(2, {GetParam()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    int64_t sum = rank + 1, sent = rank + 10, got = 0, again = 0;
    UNI_OK(uniGroupStart());
    UNI_OK(uniSend(&sent, 1, uniInt64, 1 - rank, comm, nullptr));
    UNI_OK(uniRecv(&got, 1, uniInt64, 1 - rank, comm, nullptr));
    UNI_OK(uniGroupStart());  // nests
    UNI_OK(uniAllReduce(&sum, &sum, 1, uniInt64, uniSum, comm, nullptr));
    UNI_OK(uniGroupEnd());
    EXPECT_EQ(got, 0) << "the inner end issues nothing";
    UNI_OK(uniAllReduce(&sum, &again, 1, uniInt64, uniSum, comm, nullptr));
    UNI_OK(uniGroupEnd());
    EXPECT_EQ(got, 11 - rank);
    EXPECT_EQ(sum, 3);
    EXPECT_EQ(again, 6);
  });
}

TEST_P(Groups, APreMultipliedSumScalesEachRanksInputByItsOwnScalar) {
  const Ranks world(3, {GetParam()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    const float scalar = static_cast<float>(1 << rank);
    uniRedOp_t op{};
    UNI_OK(uniRedOpCreatePreMulSum(&op, &scalar, uniFloat32, comm));
    for (const size_t count : {size_t{3}, size_t{100'001}}) {
      const std::vector<float> in(count, static_cast<float>(rank + 1));
      std::vector<float> out(count);
      UNI_OK(uniAllReduce(in.data(), out.data(), count, uniFloat32, op, comm, nullptr));
      EXPECT_EQ(out.front(), 1 * 1 + 2 * 2 + 3 * 4);
      EXPECT_EQ(out.back(), 1 * 1 + 2 * 2 + 3 * 4);
    }
    UNI_OK(uniRedOpDestroy(op, comm));
  });
}

INSTANTIATE_TEST_SUITE_P(Over, Groups, ::testing::Values("shm", "tcp", "sim"), name);

class Families : public ::testing::TestWithParam<std::string> {};

TEST_P(Families, SplitByColourOrderedByKey) {
  const int ranks = 5;
  const Ranks world(ranks, {GetParam()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    uniComm_t child = nullptr;
    const int color = rank == 4 ? UNI_SPLIT_NOCOLOR : rank % 2;
    UNI_OK(uniCommSplit(comm, color, -rank, &child, nullptr));
    if (rank == 4) {
      EXPECT_EQ(child, nullptr);
      return;
    }
    int count = 0, mine = -1;
    UNI_OK(uniCommCount(child, &count));
    UNI_OK(uniCommUserRank(child, &mine));
    EXPECT_EQ(count, 2);
    EXPECT_EQ(mine, rank < 2 ? 1 : 0) << "a higher rank has the lower key";
    int32_t sum = rank;
    UNI_OK(uniAllReduce(&sum, &sum, 1, uniInt32, uniSum, child, nullptr));
    EXPECT_EQ(sum, color == 0 ? 2 : 4);
    UNI_OK(uniCommDestroy(child));
  });
}

TEST_P(Families, CreateAGroupByItsMembersOnly) {
  const Ranks world(4, {GetParam()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    if (rank == 1) return;
    const int members[] = {3, 0, 2};
    uniComm_t child = nullptr;
    UNI_OK(uniCommCreateGroup(comm, members, 3, 17, &child, nullptr));
    int mine = -1;
    UNI_OK(uniCommUserRank(child, &mine));
    EXPECT_EQ(mine, rank == 3 ? 0 : rank == 0 ? 1 : 2);
    int32_t sum = rank;
    UNI_OK(uniAllReduce(&sum, &sum, 1, uniInt32, uniSum, child, nullptr));
    EXPECT_EQ(sum, 5);
    UNI_OK(uniCommDestroy(child));
  });
}

TEST_P(Families, TwoCommunicatorsWorkAtOnce) {
  const Ranks a(2, {GetParam()}), b(2, {GetParam()});
  ASSERT_TRUE(a.ok() && b.ok());
  // Rank 0 uses a then b; rank 1 the other way round, asynchronously: neither may block the other.
  std::thread other([&] {
    uniStream_t stream = nullptr;
    UNI_OK(uniStreamCreate(&stream));
    uniStream_t second = nullptr;
    UNI_OK(uniStreamCreate(&second));
    float x = 1, y = 1;
    UNI_OK(uniAllReduce(&x, &x, 1, uniFloat32, uniSum, b[1], stream));
    UNI_OK(uniAllReduce(&y, &y, 1, uniFloat32, uniSum, a[1], second));
    UNI_OK(uniStreamSynchronize(stream));
    UNI_OK(uniStreamSynchronize(second));
    EXPECT_EQ(x + y, 4);
    UNI_OK(uniStreamDestroy(stream));
    UNI_OK(uniStreamDestroy(second));
  });
  float x = 1, y = 1;
  UNI_OK(uniAllReduce(&y, &y, 1, uniFloat32, uniSum, a[0], nullptr));
  UNI_OK(uniAllReduce(&x, &x, 1, uniFloat32, uniSum, b[0], nullptr));
  EXPECT_EQ(x + y, 4);
  other.join();
}

INSTANTIATE_TEST_SUITE_P(Over, Families, ::testing::Values("shm", "tcp"), name);

}  // namespace
}  // namespace unisono::testing
