// uniCommAbort: from any thread, blocked or idle, every rank's pending and later operations fail
// with uniAborted.
#include "comm/handles.h"
#include "tests/comm/collective_case.h"
#include "tests/lsan_with_ucx.h"
#include "transports/sim/sim_world.h"

namespace unisono::testing {
namespace {

constexpr int kRanks = 3;

class Abort : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { SKIP_WITHOUT_PEERS(GetParam()); }
  static uniResult_t sum(uniComm_t comm, uniStream_t stream, CaseRun* run) {
    return run->call(comm, stream);
  }
  // For tests whose ranks come again with new threads: some find their error without waiting, and
  // the world shall not wait long for their threads.
  static std::string in_phases() {
    return GetParam() == "sim" ? "sim:patience_ms=200" : GetParam();
  }
  static CaseRun buffers(int rank, size_t count = 1000) {
    return CaseRun({Kind::kAllReduce, uniFloat32, uniSum, count, 0, false}, rank, kRanks);
  }
  // Until the other ranks are in their collective number `sequence`.
  static void wait_until_issued(const Ranks& world, int but, uint64_t sequence) {
    SimWorld* sim =
        GetParam() == "sim" ? SimWorld::from(*world[0]->communicator->world()) : nullptr;
    for (int rank = 0; rank < kRanks; rank++) {
      while (rank != but && world[rank]->communicator->sequence() < sequence) {
        if (sim != nullptr) {
          sim->sleep_ns(1'000'000);
        } else {
          std::this_thread::yield();
        }
      }
    }
  }
};

void expect_aborted(uniComm_t comm, int rank) {
  EXPECT_EQ(uniBarrier(comm, nullptr), uniAborted) << "rank " << rank;
  EXPECT_NE(std::string(uniGetLastError(nullptr)).find("uniCommAbort"), std::string::npos)
      << uniGetLastError(nullptr);
  char byte = 0;
  EXPECT_EQ(uniSend(&byte, 1, uniInt8, (rank + 1) % kRanks, comm, nullptr), uniAborted);
  EXPECT_EQ(uniRecv(&byte, 1, uniInt8, (rank + 1) % kRanks, comm, nullptr), uniAborted);
  uniResult_t error = uniSuccess;
  UNI_OK(uniCommGetAsyncError(comm, &error));
  EXPECT_EQ(error, uniAborted);
  uniCommInfo_t info{};
  info.size = sizeof info;
  UNI_OK(uniCommQuery(comm, &info));
  EXPECT_EQ(info.failed, 1);
}

TEST_P(Abort, FromAnotherThreadEndsTheCollectiveOfEveryRank) {
  for (const int target : {0, 2}) {  // a rank that is blocked, and the one that is not
    for (const size_t count : {size_t{1}, size_t{300'000}}) {
      const Ranks world(kRanks, {GetParam()});
      ASSERT_TRUE(world.ok());
      world.run([&](int rank, uniComm_t comm) {
        UNI_OK(uniBarrier(comm, nullptr));
        CaseRun run = buffers(rank, count);
        if (rank == 2) {
          wait_until_issued(world, 2, 2);
          UNI_OK(uniCommAbort(world[target]));
        } else {
          EXPECT_EQ(sum(comm, nullptr, &run), uniAborted) << uniGetLastError(nullptr);
          const std::string text = uniGetLastError(nullptr);
          for (const std::string& part :
               {std::string("all_reduce #2"), "on rank " + std::to_string(target)}) {
            EXPECT_NE(text.find(part), std::string::npos) << text;
          }
        }
        expect_aborted(comm, rank);
        UNI_OK(uniCommAbort(comm));  // twice is no error
        expect_aborted(comm, rank);
      });
    }
  }
}

TEST_P(Abort, WhileAllAreIdleFailsTheNextCallOfEveryRank) {
  const Ranks world(kRanks, {in_phases()});
  ASSERT_TRUE(world.ok());
  world.run([&](int, uniComm_t comm) { UNI_OK(uniBarrier(comm, nullptr)); });
  UNI_OK(uniCommAbort(world[1]));
  UNI_OK(uniCommAbort(world[1]));
  world.run([&](int rank, uniComm_t comm) { expect_aborted(comm, rank); });
}

TEST_P(Abort, ThenDestroyEndsInOrder) {
  Ranks world(kRanks, {GetParam()});
  ASSERT_TRUE(world.ok());
  world.run([&](int, uniComm_t comm) { UNI_OK(uniBarrier(comm, nullptr)); });
  const uniComm_t one = world.take(0);
  UNI_OK(uniCommAbort(one));
  UNI_OK(uniCommDestroy(one));
  world.run([&](int rank, uniComm_t comm) {
    if (rank != 0) expect_aborted(comm, rank);
  });
}

struct Counted {
  std::atomic<int> runs{0}, aborted{0};
  static void run(void* self, uniResult_t status) {
    auto* counted = static_cast<Counted*>(self);
    counted->runs++;
    if (status == uniAborted) counted->aborted++;
  }
};

TEST_P(Abort, RunsEveryHostFunctionOnceWithTheStatus) {
  const Ranks world(kRanks, {GetParam()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    uniStream_t stream = nullptr;
    uniEvent_t event = nullptr;
    UNI_OK(uniStreamCreate(&stream));
    UNI_OK(uniEventCreate(&event));
    Counted before, after, last;
    CaseRun first = buffers(rank), second = buffers(rank), third = buffers(rank);
    UNI_OK(sum(comm, stream, &first));
    UNI_OK(uniStreamLaunchHostFunc(stream, Counted::run, &before));
    if (rank != 2) {
      UNI_OK(sum(comm, stream, &second));
      UNI_OK(uniStreamLaunchHostFunc(stream, Counted::run, &after));
      UNI_OK(sum(comm, stream, &third));
      UNI_OK(uniStreamLaunchHostFunc(stream, Counted::run, &after));
      UNI_OK(uniEventRecord(event, stream));
      EXPECT_EQ(uniStreamSynchronize(stream), uniAborted);
      EXPECT_EQ(after.runs, 2);
      EXPECT_EQ(after.aborted, 2);
      UNI_OK(uniEventSynchronize(event, -1));
    } else {
      UNI_OK(uniStreamSynchronize(stream));
      wait_until_issued(world, 2, 2);
      UNI_OK(uniCommAbort(comm));
    }
    EXPECT_EQ(before.runs, 1);
    EXPECT_EQ(before.aborted, 0);
    EXPECT_EQ(first.wrong(), "");
    // The stream outlives the communicator's failure.
    UNI_OK(sum(comm, stream, &third));
    UNI_OK(uniStreamLaunchHostFunc(stream, Counted::run, &last));
    EXPECT_EQ(uniStreamSynchronize(stream), uniAborted);
    EXPECT_EQ(last.runs, 1);
    EXPECT_EQ(last.aborted, 1);
    UNI_OK(uniStreamDestroy(stream));
    UNI_OK(uniEventDestroy(event));
  });
}

TEST_P(Abort, EndsAGroupThatOneThreadDrivesForSeveralRanks) {
  const Ranks world(kRanks, {GetParam()});
  ASSERT_TRUE(world.ok());
  std::thread driver([&] {
    UNI_OK(uniGroupStart());
    UNI_OK(uniBarrier(world[0], nullptr));
    UNI_OK(uniBarrier(world[1], nullptr));
    UNI_OK(uniGroupEnd());
    CaseRun zero = buffers(0), one = buffers(1);
    UNI_OK(uniGroupStart());
    UNI_OK(sum(world[0], nullptr, &zero));
    UNI_OK(sum(world[1], nullptr, &one));
    EXPECT_EQ(uniGroupEnd(), uniAborted) << uniGetLastError(nullptr);
  });
  std::thread other([&] {
    UNI_OK(uniBarrier(world[2], nullptr));
    wait_until_issued(world, 2, 2);
    UNI_OK(uniCommAbort(world[2]));
  });
  driver.join();
  other.join();
}

TEST_P(Abort, LeavesAnotherCommunicatorWorking) {
  const Ranks aborted(kRanks, {in_phases()}), healthy(kRanks, {in_phases()});
  ASSERT_TRUE(aborted.ok() && healthy.ok());
  run_cases(healthy, {{Kind::kAllReduce, uniFloat32, uniSum, 100, 0, false}});
  UNI_OK(uniCommAbort(aborted[0]));
  aborted.run([&](int rank, uniComm_t comm) { expect_aborted(comm, rank); });
  run_cases(healthy, {{Kind::kAllReduce, uniFloat32, uniSum, 100'000, 0, false}});
}

INSTANTIATE_TEST_SUITE_P(All, Abort,
                         ::testing::Values("shm", "tcp", "sim", "ucx:tls=shm", "ucx:tls=tcp"),
                         [](const auto& one) { return word_of(one.param); });

TEST(AbortOfOneRank, FailsItsLaterCalls) {
  const Ranks world(1, {});
  ASSERT_TRUE(world.ok());
  UNI_OK(uniBarrier(world[0], nullptr));
  UNI_OK(uniCommAbort(world[0]));
  EXPECT_EQ(uniBarrier(world[0], nullptr), uniAborted);
  EXPECT_EQ(uniCommFinalize(world[0]), uniAborted);
}

}  // namespace
}  // namespace unisono::testing
