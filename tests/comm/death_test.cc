// Ranks that die, leave, or fork: the others get an error that names them, and nobody hangs.
#include "comm/handles.h"
#include "tests/comm/collective_case.h"
#include "tests/comm/processes.h"
#include "tests/lsan_with_ucx.h"
#include "transports/sim/sim_world.h"

namespace unisono::testing {
namespace {

uniResult_t sum(uniComm_t comm, int rank, int ranks, size_t count) {
  CaseRun run({Kind::kAllReduce, uniFloat32, uniSum, count, 0, false}, rank, ranks);
  return run.call(comm, nullptr);
}

// uniRemoteError in this and all later calls, naming `victim`.
void expect_remote_error(uniComm_t comm, uniResult_t result, int victim) {
  const std::string name = "rank " + std::to_string(victim);
  EXPECT_EQ(result, uniRemoteError) << uniGetLastError(nullptr);
  EXPECT_NE(std::string(uniGetLastError(nullptr)).find(name), std::string::npos)
      << uniGetLastError(nullptr);
  EXPECT_EQ(uniBarrier(comm, nullptr), uniRemoteError);
  EXPECT_NE(std::string(uniGetLastError(nullptr)).find(name), std::string::npos)
      << uniGetLastError(nullptr);
  uniResult_t error = uniSuccess;
  UNI_OK(uniCommGetAsyncError(comm, &error));
  EXPECT_EQ(error, uniRemoteError);
  char byte = 0;
  int rank = 0;
  UNI_OK(uniCommUserRank(comm, &rank));
  EXPECT_EQ(uniSend(&byte, 1, uniInt8, rank == 0 ? 1 : 0, comm, nullptr), uniRemoteError);
}

class Death : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void SetUp() override { SKIP_WITHOUT_PEERS(transport()); }
  std::string transport() const { return std::get<0>(GetParam()); }
  int victim() const { return std::get<1>(GetParam()); }
};
constexpr int kRanks = 4;
constexpr size_t kCounts[] = {2, 300'000};

TEST_P(Death, OfAProcessInACollectiveIsAnErrorOnEveryOtherRankThatNamesIt) {
  for (const size_t count : kCounts) {
    Pipe ready;
    Processes processes(kRanks, transport(), [&](int rank, uniComm_t comm) {
      UNI_OK(sum(comm, rank, kRanks, count));
      ready.tell();
      if (rank == victim()) pause();  // until killed
      expect_remote_error(comm, sum(comm, rank, kRanks, count), victim());
    });
    for (int r = 0; r < kRanks; r++) ready.hear();
    processes.kill_now(victim());
    for (int r = 0; r < kRanks; r++) {
      EXPECT_EQ(processes.wait_for(r), r == victim() ? 1000 + SIGKILL : 0) << "rank " << r;
    }
  }
}

TEST_P(Death, OfAProcessIsSeenAlsoWhileAChildForkedByItLives) {
  Pipe ready, child_may_end;
  Processes processes(kRanks, transport(), [&](int rank, uniComm_t comm) {
    UNI_OK(sum(comm, rank, kRanks, 100));
    if (rank != victim()) ready.tell();
    if (rank == victim()) {
      if (fork() == 0) {
        ready.tell();
        child_may_end.hear();
        _exit(0);
      }
      pause();
    }
    expect_remote_error(comm, sum(comm, rank, kRanks, 100), victim());
  });
  for (int r = 0; r < kRanks; r++) ready.hear();
  processes.kill_now(victim());
  for (int r = 0; r < kRanks; r++) {
    EXPECT_EQ(processes.wait_for(r), r == victim() ? 1000 + SIGKILL : 0) << "rank " << r;
  }
  child_may_end.tell();
}

TEST_P(Death, WhileAllAreIdleFailsTheNextCallOfEveryRank) {
  std::vector<std::unique_ptr<Pipe>> go;
  for (int r = 0; r < kRanks; r++) go.push_back(std::make_unique<Pipe>());
  Pipe ready;
  Processes processes(kRanks, transport(), [&](int rank, uniComm_t comm) {
    UNI_OK(sum(comm, rank, kRanks, 100));
    ready.tell();
    go[static_cast<size_t>(rank)]->hear();
    expect_remote_error(comm, sum(comm, rank, kRanks, 100), victim());
  });
  for (int r = 0; r < kRanks; r++) ready.hear();
  processes.kill_now(victim());
  EXPECT_EQ(processes.wait_for(victim()), 1000 + SIGKILL);
  for (int r = 0; r < kRanks; r++) {
    if (r == victim()) continue;
    go[static_cast<size_t>(r)]->tell();
    EXPECT_EQ(processes.wait_for(r), 0) << "rank " << r;
  }
}

TEST_P(Death, OfTheSenderEndsAReceiveFromIt) {
  const int receiver = (victim() + 1) % kRanks;
  Pipe ready;
  Processes processes(kRanks, transport(), [&](int rank, uniComm_t comm) {
    std::vector<char> data(1u << 20);
    if (rank == victim()) {
      UNI_OK(uniSend(data.data(), 10, uniInt8, receiver, comm, nullptr));
      ready.tell();
      pause();
    }
    if (rank == receiver) UNI_OK(uniRecv(data.data(), 10, uniInt8, victim(), comm, nullptr));
    ready.tell();
    if (rank == receiver) {
      const uniResult_t result =
          uniRecv(data.data(), data.size(), uniInt8, victim(), comm, nullptr);
      expect_remote_error(comm, result, victim());
    } else {
      expect_remote_error(comm, uniBarrier(comm, nullptr), victim());
    }
  });
  for (int r = 0; r < kRanks; r++) ready.hear();
  processes.kill_now(victim());
  for (int r = 0; r < kRanks; r++) {
    EXPECT_EQ(processes.wait_for(r), r == victim() ? 1000 + SIGKILL : 0) << "rank " << r;
  }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<std::string, int>>& info) {
  return word_of(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Real, Death,
                         ::testing::Combine(::testing::Values("shm", "tcp", "tcp:sockets=3",
                                                              "ucx:tls=shm", "ucx:tls=tcp"),
                                            ::testing::Values(0, 2)),
                         name_of);

TEST(SimulatedDeath, IsAnErrorOnEveryOtherRankThatNamesIt) {
  for (const int ranks : {2, 3, 5}) {
    for (const int victim : {0, ranks - 1}) {
      for (const size_t count : kCounts) {
        const Ranks world(ranks, {"sim"});
        ASSERT_TRUE(world.ok());
        SimWorld* sim = SimWorld::from(*world[0]->communicator->world());
        ASSERT_NE(sim, nullptr);
        world.run([&](int rank, uniComm_t comm) {
          UNI_OK(sum(comm, rank, ranks, count));
          if (rank == victim) {
            sim->kill(victim);
            return;
          }
          expect_remote_error(comm, sum(comm, rank, ranks, count), victim);
        });
      }
    }
  }
}

class Leaving : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  std::string transport() const { return std::get<0>(GetParam()); }
  int leaver() const { return std::get<1>(GetParam()); }
};

TEST_P(Leaving, InOrderIsAnErrorForThoseWhoStillCallThatNamesTheOneWhoLeft) {
  for (const char* algorithm : {"", "ring", "binomial_tree"}) {
    for (const size_t count : kCounts) {
      SCOPED_TRACE(std::string(algorithm) + " " + std::to_string(count));
      Ranks world(kRanks, {transport(), algorithm});
      ASSERT_TRUE(world.ok());
      const uniComm_t leaving = world.take(leaver());
      world.run([&](int rank, uniComm_t comm) {
        if (rank == leaver()) {
          UNI_OK(sum(leaving, rank, kRanks, count));
          UNI_OK(uniCommDestroy(leaving));
          return;
        }
        // The first of the others to miss the one that left may fail it for those who are behind.
        uniResult_t result = sum(comm, rank, kRanks, count);
        if (result == uniSuccess) result = sum(comm, rank, kRanks, count);
        expect_remote_error(comm, result, leaver());
      });
    }
  }
}

TEST_P(Leaving, AfterASendLeavesTheMessageToBeReceived) {
  const int receiver = (leaver() + 1) % kRanks;
  Ranks world(kRanks, {transport()});
  ASSERT_TRUE(world.ok());
  const uniComm_t leaving = world.take(leaver());
  world.run([&](int rank, uniComm_t comm) {
    std::vector<char> data(400'000);
    const uniResult_t met = uniBarrier(rank == leaver() ? leaving : comm, nullptr);
    if (rank != leaver() && rank != receiver) {
      // The receiver's second receive may fail this rank while it is still in the barrier.
      if (met != uniSuccess) expect_remote_error(comm, met, leaver());
      return;
    }
    UNI_OK(met);
    if (rank == leaver()) {
      UNI_OK(uniSend(data.data(), data.size(), uniInt8, receiver, leaving, nullptr));
      UNI_OK(uniCommDestroy(leaving));
    } else {
      UNI_OK(uniRecv(data.data(), data.size(), uniInt8, leaver(), comm, nullptr));
      const uniResult_t result = uniRecv(data.data(), 1, uniInt8, leaver(), comm, nullptr);
      expect_remote_error(comm, result, leaver());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, Leaving,
                         ::testing::Combine(::testing::Values("shm", "tcp", "sim"),
                                            ::testing::Values(0, 2)),
                         name_of);

class Fork : public ::testing::TestWithParam<std::string> {};

TEST_P(Fork, LeavesTheChildClearErrorsAndTheParentAndItsPeersUntouched) {
  Processes processes(2, GetParam(), [&](int rank, uniComm_t comm) {
    UNI_OK(sum(comm, rank, 2, 1000));
    uniStream_t stream = nullptr;
    uniEvent_t event = nullptr;
    void* memory = nullptr;
    UNI_OK(uniStreamCreate(&stream));
    UNI_OK(uniEventCreate(&event));
    UNI_OK(uniMemAlloc(&memory, 100));
    UNI_OK(uniBarrier(comm, stream));
    UNI_OK(uniStreamSynchronize(stream));
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      float a = 1, b = 0;
      EXPECT_EQ(uniAllReduce(&a, &b, 1, uniFloat32, uniSum, comm, nullptr), uniInvalidUsage);
      EXPECT_EQ(uniSend(&a, 1, uniFloat32, 1 - rank, comm, nullptr), uniInvalidUsage);
      EXPECT_EQ(uniBarrier(comm, stream), uniInvalidUsage);
      EXPECT_EQ(uniCommAbort(comm), uniInvalidUsage);
      EXPECT_EQ(uniCommFinalize(comm), uniInvalidUsage);
      EXPECT_EQ(uniCommSetTimeout(comm, 5), uniInvalidUsage);
      uniResult_t error = uniSuccess;
      EXPECT_EQ(uniCommGetAsyncError(comm, &error), uniInvalidUsage);
      uniUniqueId id;
      EXPECT_EQ(uniGetUniqueId(&id), uniInvalidUsage);
      uniComm_t other = nullptr;
      EXPECT_EQ(uniCommInitAll(&other, 1, nullptr), uniInvalidUsage);
      void* more = nullptr;
      EXPECT_EQ(uniMemAlloc(&more, 10), uniInvalidUsage);
      EXPECT_EQ(uniStreamSynchronize(stream), uniInvalidUsage);
      EXPECT_EQ(uniEventRecord(event, stream), uniInvalidUsage);
      EXPECT_EQ(uniEventSynchronize(event, -1), uniInvalidUsage);
      EXPECT_EQ(uniStreamLaunchHostFunc(
                    stream, [](void*, uniResult_t) {}, nullptr),
                uniInvalidUsage);
      EXPECT_EQ(uniGroupStart(), uniInvalidUsage);
      // Frees are no errors: what they would free is the parent's.
      EXPECT_EQ(uniMemFree(memory), uniSuccess);
      EXPECT_EQ(uniStreamDestroy(stream), uniSuccess);
      EXPECT_EQ(uniEventDestroy(event), uniSuccess);
      EXPECT_EQ(uniCommDestroy(comm), uniSuccess);
      std::exit(::testing::Test::HasFailure() ? 1 : 0);  // with all exit handlers
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    UNI_OK(sum(comm, rank, 2, 100'000));
    UNI_OK(uniBarrier(comm, stream));
    UNI_OK(uniStreamSynchronize(stream));
    UNI_OK(uniStreamDestroy(stream));
    UNI_OK(uniEventDestroy(event));
    UNI_OK(uniMemFree(memory));
  });
  for (int r = 0; r < 2; r++) EXPECT_EQ(processes.wait_for(r), 0) << "rank " << r;
}
INSTANTIATE_TEST_SUITE_P(Real, Fork, ::testing::Values("shm", "tcp"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace unisono::testing
