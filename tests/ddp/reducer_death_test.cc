// Ranks that die or are given up in mid-backward: the others' uniReducerFinish returns the
// communicator's error, and nobody hangs.
#include "tests/comm/processes.h"
#include "tests/ddp/reducer_harness.h"

namespace unisono::testing {
namespace {

constexpr int kRanks = 3, kVictim = 1;

uniReducerConfig_t kept(int views = 0) {
  uniReducerConfig_t config = small_buckets(views);
  config.keep_buckets = 1;
  return config;
}

class ReducerDeath : public ::testing::TestWithParam<std::string> {};

TEST_P(ReducerDeath, OfAProcessInMidBackwardIsTheCommunicatorsErrorAtFinish) {
  Pipe ready;
  Processes processes(kRanks, GetParam(), [&](int rank, uniComm_t comm) {
    const Model model(comm, plain_specs(6, 5000), kept());
    model.iterate();
    UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
    for (const int i : {5, 4, 3}) UNI_OK(uniReducerMarkReady(model.reducer(), i));
    ready.tell();
    if (rank == kVictim) pause();  // until killed
    // What is launched by now may be done, or fail: then the call that launches more says so.
    for (const int i : {2, 1, 0}) (void)uniReducerMarkReady(model.reducer(), i);
    const uniResult_t result = uniReducerFinish(model.reducer());
    const std::string words = uniGetLastError(nullptr);
    EXPECT_EQ(result, uniRemoteError) << words;
    EXPECT_NE(words.find("rank 1"), std::string::npos) << words;
  });
  for (int r = 0; r < kRanks; r++) ready.hear();
  processes.kill_now(kVictim);
  for (int r = 0; r < kRanks; r++) {
    EXPECT_EQ(processes.wait_for(r), r == kVictim ? 1000 + SIGKILL : 0) << "rank " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Real, ReducerDeath, ::testing::Values("shm", "tcp"));

TEST(ReducerAbort, FromOutsideEndsFinishOnEveryRank) {
  for (const int views : {0, 1}) {
    const Ranks world(kRanks, {"shm"});
    ASSERT_TRUE(world.ok());
    world.run([&](int rank, uniComm_t comm) {
      const Model model(comm, plain_specs(6, 50), kept(views));
      ASSERT_EQ(model.created(), uniSuccess) << model.words();
      UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
      if (rank == kVictim) UNI_OK(uniCommAbort(comm));
      // Whether a launch fails at once or on the stream is left open.
      for (const int i : model.backward_order()) (void)uniReducerMarkReady(model.reducer(), i);
      EXPECT_EQ(uniReducerFinish(model.reducer()), uniAborted) << uniGetLastError(nullptr);
      // And what comes later fails as the communicator does.
      UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
      for (const int i : model.backward_order()) (void)uniReducerMarkReady(model.reducer(), i);
      EXPECT_EQ(uniReducerFinish(model.reducer()), uniAborted) << uniGetLastError(nullptr);
    });
  }
}

TEST(ReducerDestroy, InMidIterationEndsTheOthersFinish) {
  for (const int views : {0, 1}) {
    for (const int marked : {0, 3, 6}) {
      const Ranks world(kRanks, {"shm"});
      ASSERT_TRUE(world.ok());
      world.run([&](int rank, uniComm_t comm) {
        const Model model(comm, plain_specs(6, 3000), kept(views));
        ASSERT_EQ(model.created(), uniSuccess) << model.words();
        UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
        for (int i = 5; i > 5 - (rank == kVictim ? marked : 6); i--) {
          (void)uniReducerMarkReady(model.reducer(), i);
        }
        if (rank == kVictim) return;  // Destroyed as it is.
        EXPECT_EQ(uniReducerFinish(model.reducer()), uniAborted) << uniGetLastError(nullptr);
      });
    }
  }
}

TEST(ReducerDestroy, BetweenIterationsLeavesTheCommunicatorUsable) {
  const Ranks world(2, {"shm"});
  ASSERT_TRUE(world.ok());
  world.run([&](int, uniComm_t comm) {
    for (const int views : {0, 1}) {
      const Model model(comm, plain_specs(6, 50), small_buckets(views));
      model.iterate();
      UNI_OK(uniReducerBeginBackward(model.reducer(), 0));  // Nobody waits for anybody.
    }
    UNI_OK(uniBarrier(comm, nullptr));
  });
}

}  // namespace
}  // namespace unisono::testing
