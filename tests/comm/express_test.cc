// The express way (comm/express.h) means what the usual way means: the same results call after
// call, the same refusals, the same errors, with groups, streams and other calls in between.
#include "comm/handles.h"
#include "tests/comm/collective_case.h"
#include "tests/lsan_with_ucx.h"

namespace unisono::testing {
namespace {

bool takes_express(uniComm_t comm, const Case& c) {
  return comm->communicator->find_express(c.type, c.op, c.count) != nullptr;
}

class ExpressTest : public ::testing::TestWithParam<int> {};

TEST_P(ExpressTest, EveryTypeAndOpIsExactFromTheSecondCallOn) {
  const Ranks world(GetParam(), {});
  ASSERT_TRUE(world.ok());
  std::atomic<int> taken{0};
  world.run([&](int rank, uniComm_t comm) {
    for (int type = 0; type < uniNumTypes; type++) {
      for (int op = 0; op < uniNumOps; op++) {
        const auto t = static_cast<uniDataType_t>(type);
        const auto o = static_cast<uniRedOp_t>(op);
        if (!defined(o, t)) continue;
        for (const size_t count : {1, 3, 13, 101}) {
          for (int turn = 0; turn < 3; turn++) {
            const Case c{Kind::kAllReduce, t, o, count, 0, turn == 2};
            CaseRun run(c, rank, world.count());
            taken += turn > 0 && takes_express(comm, c) ? 1 : 0;
            UNI_OK(run.call(comm, nullptr));
            EXPECT_EQ(run.wrong(), "") << "rank " << rank << ": " << c.text() << " turn " << turn;
          }
        }
      }
    }
  });
  EXPECT_GT(taken.load(), 0) << "nothing went the express way: this test has tested nothing";
}

TEST_P(ExpressTest, OtherCallsGroupsAndStreamsInBetweenKeepTheirOrder) {
  const Ranks world(GetParam(), {});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    uniStream_t stream = nullptr;
    UNI_OK(uniStreamCreate(&stream));
    const Case small{Kind::kAllReduce, uniFloat32, uniSum, 7, 0, false};
    const Case others[] = {{Kind::kAllGather, uniInt32, uniSum, 9, 0, false},
                           {Kind::kAllReduce, uniFloat64, uniMax, 3001, 0, false},
                           {Kind::kBarrier, uniUint8, uniSum, 0, 0, false}};
    for (int turn = 0; turn < 40; turn++) {
      CaseRun before(small, rank, world.count()), queued(small, rank, world.count());
      CaseRun grouped(small, rank, world.count()), after(small, rank, world.count());
      CaseRun other(others[turn % 3], rank, world.count());
      UNI_OK(before.call(comm, nullptr));
      UNI_OK(queued.call(comm, stream));
      UNI_OK(after.call(comm, nullptr));  // issued while the stream may still hold the turn
      UNI_OK(uniGroupStart());
      UNI_OK(grouped.call(comm, nullptr));
      UNI_OK(other.call(comm, nullptr));
      UNI_OK(uniGroupEnd());
      UNI_OK(uniStreamSynchronize(stream));
      for (CaseRun* run : {&before, &queued, &grouped, &after, &other}) EXPECT_EQ(run->wrong(), "");
    }
    UNI_OK(uniStreamDestroy(stream));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExpressTest, ::testing::Values(2, 3, 5));

// Warms the shape (int32, sum, 4) up on both ranks.
void warm(const Ranks& world) {
  world.run([&](int, uniComm_t comm) {
    const int32_t in[4] = {1, 2, 3, 4};
    int32_t out[4] = {};
    for (int i = 0; i < 3; i++) UNI_OK(uniAllReduce(in, out, 4, uniInt32, uniSum, comm, nullptr));
    EXPECT_NE(comm->communicator->find_express(uniInt32, uniSum, 4), nullptr);
  });
}

TEST(Express, RefusesWhatTheUsualWayRefusesAndNothingIsLost) {
  const Ranks world(2, {});
  ASSERT_TRUE(world.ok());
  warm(world);
  world.run([&](int, uniComm_t comm) {
    int32_t buffer[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[4] = {};
    EXPECT_EQ(uniAllReduce(buffer, buffer + 2, 4, uniInt32, uniSum, comm, nullptr),
              uniInvalidArgument);
    EXPECT_NE(std::string(uniGetLastError(nullptr)).find("recv"), std::string::npos);
    EXPECT_EQ(uniAllReduce(nullptr, out, 4, uniInt32, uniSum, comm, nullptr), uniInvalidArgument);
    EXPECT_EQ(uniAllReduce(buffer, nullptr, 4, uniInt32, uniSum, comm, nullptr),
              uniInvalidArgument);
    EXPECT_EQ(uniAllReduce(buffer, out, 4, uniInt32, uniSum, nullptr, nullptr), uniInvalidArgument);
    // 256 more than a valid type: must not be taken for it.
    EXPECT_EQ(uniAllReduce(buffer, out, 4, static_cast<uniDataType_t>(uniInt32 + 256), uniSum, comm,
                           nullptr),
              uniInvalidArgument);
    UNI_OK(uniAllReduce(buffer, out, 4, uniInt32, uniSum, comm, nullptr));
    EXPECT_EQ(out[3], 8);
  });
}

TEST(Express, ADifferenceAfterManyEqualCallsIsAMismatchOnBothRanks) {
  const Ranks world(2, {});
  ASSERT_TRUE(world.ok());
  warm(world);
  world.run([&](int rank, uniComm_t comm) {
    const int32_t in[4] = {1, 2, 3, 4};
    int32_t out[4] = {};
    const uniRedOp_t op = rank == 0 ? uniSum : uniMax;
    uniResult_t result = uniAllReduce(in, out, 4, uniInt32, op, comm, nullptr);
    if (result == uniSuccess) result = uniBarrier(comm, nullptr);
    EXPECT_EQ(result, uniMismatch) << uniGetLastError(nullptr);
    const std::string text = uniGetLastError(nullptr);
    EXPECT_NE(text.find("all_reduce #4"), std::string::npos) << text;
  });
}

TEST(Express, APeerThatNeverCallsIsADeadlineOrAnAbort) {
  const Ranks world(2, {});
  ASSERT_TRUE(world.ok());
  warm(world);
  UNI_OK(uniCommSetTimeout(world[0], 300));
  const int32_t in[4] = {1, 2, 3, 4};
  int32_t out[4] = {};
  EXPECT_EQ(uniAllReduce(in, out, 4, uniInt32, uniSum, world[0], nullptr), uniTimeout);
  EXPECT_NE(std::string(uniGetLastError(nullptr)).find("all_reduce #4"), std::string::npos);
  EXPECT_EQ(uniAllReduce(in, out, 4, uniInt32, uniSum, world[0], nullptr), uniTimeout);
}

TEST(Express, MoreCallsThanDescriptorsAgainstASlowPeerAreAllExact) {
  const Ranks world(2, {});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    for (int32_t i = 0; i < 2000; i++) {
      if (rank == 1 && i % 97 == 0) std::this_thread::yield();
      const int32_t in[2] = {i, rank};
      int32_t out[2] = {};
      UNI_OK(uniAllReduce(in, out, 2, uniInt32, uniSum, comm, nullptr));
      EXPECT_EQ(out[0], 2 * i);
      EXPECT_EQ(out[1], 1);
    }
  });
}

// UCX reads messages from 2 KiB on in the caller's memory: such a call has been sent, and must
// neither be sent again the usual way nor return while it is read.
TEST(Express, OverUcxAMessageThatIsReadInPlaceIsSentOnce) {
  SKIP_WITHOUT("ucx:tls=shm");
  ASSERT_EQ(setenv("UCX_RNDV_THRESH", "2048", 1), 0);
  const Ranks world(2, {"ucx:tls=shm", "one_shot"});
  ASSERT_TRUE(world.ok());
  std::atomic<int> taken{0};
  world.run([&](int rank, uniComm_t comm) {
    for (const size_t count : {1, 255, 513, 1024, 4001}) {
      for (int turn = 0; turn < 50; turn++) {
        const Case c{Kind::kAllReduce, uniFloat32, uniSum, count, 0, turn % 2 == 1};
        CaseRun run(c, rank, world.count());
        taken += turn > 0 && takes_express(comm, c) ? 1 : 0;
        UNI_OK(run.call(comm, nullptr));
        ASSERT_EQ(run.wrong(), "") << "rank " << rank << ": " << c.text() << " turn " << turn;
      }
    }
  });
  EXPECT_GT(taken.load(), 0) << "nothing went the express way: this test has tested nothing";
}

}  // namespace
}  // namespace unisono::testing
