// Ranks that leave in order (uniCommDestroy) while others go on: who still needs them gets an error
// that names them, wherever it is in the control tree, and what happens later still reaches all.
#include "comm/handles.h"
#include "tests/comm/collective_case.h"
#include "tests/lsan_with_ucx.h"
#include "transports/sim/sim_world.h"

namespace unisono::testing {
namespace {

// Rank 0 on top of the control tree, 1 to 8 below it, 9 to 16 below 1, 17 and 18 below 2.
constexpr int kTreeRanks = 19;

class Leave : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { SKIP_WITHOUT_PEERS(transport()); }
  static std::string transport() { return GetParam(); }
  // Until `flag` is set, time going on in the simulated world, too.
  static void wait_for(const std::atomic<bool>& flag, uniComm_t comm) {
    SimWorld* sim = nullptr;
    if (transport() == "sim") sim = SimWorld::from(*comm->communicator->world());
    while (!flag) {
      if (sim != nullptr) {
        sim->sleep_ns(1'000'000);
      } else {
        std::this_thread::yield();
      }
    }
  }
};

void expect_named(uniResult_t result, uniResult_t expected, int rank) {
  const std::string text = uniGetLastError(nullptr);
  EXPECT_EQ(result, expected) << text;
  EXPECT_NE(text.find("rank " + std::to_string(rank)), std::string::npos) << text;
}

TEST_P(Leave, FailsTheCollectiveOfEveryRankInEveryBranchOfTheTree) {
  for (const auto& [leaver, destroys] :
       {std::pair{0, true}, std::pair{0, false}, std::pair{1, false}, std::pair{18, true}}) {
    SCOPED_TRACE(std::to_string(leaver) + (destroys ? " destroys" : " finalizes"));
    Ranks world(kTreeRanks, {transport(), "", false, 20'000});
    ASSERT_TRUE(world.ok());
    const uniComm_t leaving = world.take(leaver);
    world.run([&, leaver = leaver, destroys = destroys](int rank, uniComm_t comm) {
      const uniResult_t met = uniBarrier(rank == leaver ? leaving : comm, nullptr);
      // The failure may come while some are still in it.
      if (rank != leaver && met != uniSuccess) return expect_named(met, uniRemoteError, leaver);
      UNI_OK(met);
      if (rank == leaver) {
        UNI_OK(destroys ? uniCommDestroy(leaving) : uniCommFinalize(leaving));
      } else {
        expect_named(uniBarrier(comm, nullptr), uniRemoteError, leaver);
      }
    });
    if (!destroys) UNI_OK(uniCommDestroy(leaving));
  }
}

// An inner rank of the tree has left, and one below it is behind the gap when another one fails.
TEST_P(Leave, OfAnInnerRankOfTheTreeLeavesTheOthersWithinReachOfALaterFailure) {
  struct Way {
    int leaver, failing;
  };
  for (const Way way : {Way{0, 9}, Way{0, 18}, Way{1, 18}, Way{1, 9}, Way{2, 0}}) {
    SCOPED_TRACE(std::to_string(way.leaver) + " leaves, " + std::to_string(way.failing) + " fails");
    Ranks world(kTreeRanks, {transport(), "", false, 20'000});
    ASSERT_TRUE(world.ok());
    const uniComm_t leaving = world.take(way.leaver);
    std::atomic<bool> gone{false};
    world.run([&](int rank, uniComm_t comm) {
      const uniResult_t met = uniBarrier(rank == way.leaver ? leaving : comm, nullptr);
      // The failure may come while some are still in it.
      if (met != uniSuccess) return expect_named(met, uniAborted, way.failing);
      if (rank == way.leaver) {
        UNI_OK(uniCommDestroy(leaving));
        gone = true;
        return;
      }
      if (rank == way.failing) {
        wait_for(gone, comm);
        UNI_OK(uniCommAbort(comm));
      }
      char byte = 0;  // that never comes
      const int from = rank == way.failing ? way.failing == 0 ? 1 : 0 : way.failing;
      expect_named(uniRecv(&byte, 1, uniInt8, from, comm, nullptr), uniAborted, way.failing);
    });
  }
}

// The first leaves before the second, whose news then find no way through the tree's old links.
TEST_P(Leave, OfOneAfterTheOtherIsKnownToThoseWhoWaitForTheSecond) {
  Ranks world(kTreeRanks, {transport(), "", false, 20'000});
  ASSERT_TRUE(world.ok());
  const uniComm_t first = world.take(0), second = world.take(9);
  std::atomic<bool> gone{false};
  world.run([&](int rank, uniComm_t comm) {
    const uniResult_t met = uniBarrier(rank == 0 ? first : rank == 9 ? second : comm, nullptr);
    // The failure may come while some are still in it.
    if (rank != 0 && rank != 9 && met != uniSuccess) return expect_named(met, uniRemoteError, 9);
    UNI_OK(met);
    if (rank == 0) {
      UNI_OK(uniCommDestroy(first));
      gone = true;
    } else if (rank == 9) {
      wait_for(gone, second);
      UNI_OK(uniCommDestroy(second));
    } else {
      char byte = 0;
      expect_named(uniRecv(&byte, 1, uniInt8, 9, comm, nullptr), uniRemoteError, 9);
    }
  });
}

// Links of some transports are made when they are first needed: these never were.
TEST_P(Leave, BeforeAnythingWasExchangedFailsSendsAndReceives) {
  enum class What { kRecv, kRecvAny, kSend, kSendLittle };
  for (const What what : {What::kRecv, What::kRecvAny, What::kSend, What::kSendLittle}) {
    for (const int leaver : {0, 1}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(what)) + " leaver " + std::to_string(leaver));
      Ranks world(2, {transport(), "", false, 20'000});
      ASSERT_TRUE(world.ok());
      const uniComm_t leaving = world.take(leaver);
      world.run([&](int rank, uniComm_t comm) {
        if (rank == leaver) {
          UNI_OK(uniCommDestroy(leaving));
          return;
        }
        std::vector<char> data(8u << 20);
        int from = -1;
        uniResult_t result = uniSuccess;
        if (what == What::kRecv) {
          result = uniRecv(data.data(), 1, uniInt8, leaver, comm, nullptr);
        } else if (what == What::kRecvAny) {
          result = uniRecvAny(data.data(), 1, uniInt8, &from, comm, nullptr);
        } else if (what == What::kSend) {
          result = uniSend(data.data(), data.size(), uniInt8, leaver, comm, nullptr);
        } else {
          result = uniSend(data.data(), 1, uniInt8, leaver, comm, nullptr);
          // Perhaps it was sent before the other left. The next is of another opinion.
          if (result == uniSuccess) result = uniBarrier(comm, nullptr);
        }
        expect_named(result, uniRemoteError, leaver);
      });
    }
  }
}

TEST_P(Leave, OfOneRankLeavesTheOthersExchangingMessages) {
  constexpr int kRanks = 4;
  for (const int leaver : {0, 2}) {
    Ranks world(kRanks, {transport()});
    ASSERT_TRUE(world.ok());
    const uniComm_t leaving = world.take(leaver);
    std::atomic<bool> gone{false};
    world.run([&](int rank, uniComm_t comm) {
      UNI_OK(uniBarrier(rank == leaver ? leaving : comm, nullptr));
      if (rank == leaver) {
        UNI_OK(uniCommDestroy(leaving));
        gone = true;
        return;
      }
      wait_for(gone, comm);
      int next = (rank + 1) % kRanks, before = (rank + kRanks - 1) % kRanks;
      if (next == leaver) next = (next + 1) % kRanks;
      if (before == leaver) before = (before + kRanks - 1) % kRanks;
      std::vector<int> out(300'000, rank), in(300'000, -1);
      for (int i = 0; i < 3; i++) {
        UNI_OK(uniGroupStart());
        UNI_OK(uniSend(out.data(), out.size(), uniInt32, next, comm, nullptr));
        if (i < 2) {
          UNI_OK(uniRecv(in.data(), in.size(), uniInt32, before, comm, nullptr));
        } else {
          UNI_OK(uniRecvAny(in.data(), in.size(), uniInt32, nullptr, comm, nullptr));
        }
        UNI_OK(uniGroupEnd());
        EXPECT_EQ(in, std::vector<int>(300'000, before));
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, Leave,
                         ::testing::Values("shm", "tcp", "sim", "ucx:tls=shm", "ucx:tls=tcp"),
                         [](const auto& one) { return word_of(one.param); });

TEST(LeaveWithinAGroup, IsRefusedForWhatTheGroupsCallsUse) {
  const Ranks world(2, {"shm"});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    uniStream_t stream = nullptr;
    UNI_OK(uniStreamCreate(&stream));
    int sent = rank, received = -1;
    UNI_OK(uniGroupStart());
    UNI_OK(uniBarrier(comm, stream));
    UNI_OK(uniSend(&sent, 1, uniInt32, 1 - rank, comm, nullptr));
    UNI_OK(uniRecv(&received, 1, uniInt32, 1 - rank, comm, nullptr));
    for (int i = 0; i < 2; i++) {
      EXPECT_EQ(i == 0 ? uniCommDestroy(comm) : uniCommFinalize(comm), uniInvalidUsage);
      const std::string text = uniGetLastError(nullptr);
      EXPECT_NE(text.find("comm: "), std::string::npos) << text;
      EXPECT_NE(text.find("group"), std::string::npos) << text;
    }
    EXPECT_EQ(uniStreamDestroy(stream), uniInvalidUsage);
    EXPECT_NE(std::string(uniGetLastError(nullptr)).find("stream: "), std::string::npos);
    UNI_OK(uniGroupEnd());
    UNI_OK(uniStreamSynchronize(stream));
    EXPECT_EQ(received, 1 - rank);
    UNI_OK(uniStreamDestroy(stream));
    UNI_OK(uniBarrier(comm, nullptr));
  });
}

}  // namespace
}  // namespace unisono::testing
