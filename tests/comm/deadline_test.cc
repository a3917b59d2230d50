// A rank that does not come: the others get uniTimeout when the deadline passes, and the message
// says in what, where, for whom they waited and who was there.
#include "tests/comm/collective_case.h"

namespace unisono::testing {
namespace {

class Deadline : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  std::string transport() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  // Long enough for ranks on a busy machine to tell each other that they wait; in sim it is
  // virtual.
  int64_t timeout_ms() const { return transport() == "sim" ? 300 : 2000; }
  // For tests whose ranks come again with new threads: some find their error without waiting, and
  // the world shall not wait long for their threads.
  std::string in_phases() const {
    const std::string patience_ms = kInstrumented ? "2000" : "200";
    return transport() == "sim" ? "sim:patience_ms=" + patience_ms : transport();
  }
};

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  }
}

uniResult_t sum(uniComm_t comm, int rank, int ranks, size_t count) {
  CaseRun run({Kind::kAllReduce, uniFloat32, uniSum, count, 0, false}, rank, ranks);
  return run.call(comm, nullptr);
}

TEST_P(Deadline, OfACollectiveNamesOperationStepPeerAndWhoHadArrived) {
  const int missing = ranks() - 1;
  for (const size_t count : {size_t{1}, size_t{300'000}}) {
    const Ranks world(ranks(), {in_phases()});  // a minute to meet
    ASSERT_TRUE(world.ok());
    std::atomic<int> told_once{0};
    world.run([&](int rank, uniComm_t comm) {
      UNI_OK(uniBarrier(comm, nullptr));
      UNI_OK(uniCommSetTimeout(comm, timeout_ms()));
      if (rank == missing) return;
      EXPECT_EQ(sum(comm, rank, ranks(), count), uniTimeout);
      const std::string text = uniGetLastError(nullptr);
      expect_parts(text,
                   {"all_reduce #2", "count " + std::to_string(count), "step ", "waiting for rank ",
                    "timed out after " + std::to_string(timeout_ms()), "known to wait in it: "});
      // One of them ran into its deadline first and told the others; it lists these.
      if (text.find("all_reduce #2") == text.rfind("all_reduce #2")) told_once++;
      const std::string list = text.substr(text.find("known to wait in it: ") + 21);
      EXPECT_EQ(list.find(std::to_string(missing)), std::string::npos) << text;
      const std::string like = ranks() == 2 ? "none" : ranks() == 3 ? "0" : "0, 1, 2";
      EXPECT_EQ(list.size(), like.size()) << text;
    });
    EXPECT_GE(told_once, 1) << "even who ran into it names the operation twice";
    // Who comes late learns it at once, and so does everybody from then on.
    world.run([&](int rank, uniComm_t comm) {
      uniResult_t result = sum(comm, rank, ranks(), count);
      // All that it needed may have been there before the news.
      if (result == uniSuccess) result = uniBarrier(comm, nullptr);
      EXPECT_EQ(result, uniTimeout);
      expect_parts(uniGetLastError(nullptr), {"all_reduce #2", "timed out"});
      uniResult_t error = uniSuccess;
      UNI_OK(uniCommGetAsyncError(comm, &error));
      EXPECT_EQ(error, uniTimeout);
    });
  }
}

TEST_P(Deadline, CanBeSetForTheOperationsThatFollow) {
  const Ranks world(ranks(), {transport()});  // a minute
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    UNI_OK(uniCommSetTimeout(comm, 50'000));
    UNI_OK(uniBarrier(comm, nullptr));
    if (rank == 0) return;
    UNI_OK(uniCommSetTimeout(comm, rank == 1 ? 250 : 40'000));
    EXPECT_EQ(uniBarrier(comm, nullptr), uniTimeout);
    expect_parts(uniGetLastError(nullptr), {"barrier #2", "timed out after 250 ms"});
  });
}

TEST_P(Deadline, OfAReceiveNamesThePeerAndTheMessage) {
  const Ranks world(ranks(), {in_phases()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    UNI_OK(uniBarrier(comm, nullptr));
    UNI_OK(uniCommSetTimeout(comm, 250));
    if (rank != 0) return;
    std::vector<char> data(77);
    EXPECT_EQ(uniRecv(data.data(), data.size(), uniInt8, 1, comm, nullptr), uniTimeout);
    expect_parts(uniGetLastError(nullptr),
                 {"recv from rank 1", "int8", "count 77", "timed out after 250 ms"});
  });
  world.run([&](int, uniComm_t comm) { EXPECT_EQ(uniBarrier(comm, nullptr), uniTimeout); });
}

TEST_P(Deadline, OfAsynchronousWorkIsTheStreamsError) {
  const Ranks world(ranks(), {transport()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    UNI_OK(uniBarrier(comm, nullptr));
    UNI_OK(uniCommSetTimeout(comm, 250));
    if (rank == 0) return;
    uniStream_t stream = nullptr;
    UNI_OK(uniStreamCreate(&stream));
    UNI_OK(uniBarrier(comm, stream));
    EXPECT_EQ(uniStreamSynchronize(stream), uniTimeout);
    expect_parts(uniGetLastError(nullptr), {"barrier #2", "timed out after 250 ms"});
    UNI_OK(uniStreamDestroy(stream));
  });
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<std::string, int>>& info) {
  return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, Deadline,
                         ::testing::Combine(::testing::Values("shm", "tcp", "sim"),
                                            ::testing::Values(2, 3, 5)),
                         name_of);

TEST(DeadlineOfStartUp, EndsAMeetingThatNotEverybodyComesTo) {
  for (const std::string transport : {"shm", "tcp"}) {
    uniUniqueId id;
    UNI_OK(uniGetUniqueId(&id));
    std::vector<std::thread> threads;
    std::atomic<int> timeouts{0};
    for (int rank = 0; rank < 2; rank++) {
      threads.emplace_back([&, rank] {
        uniConfig_t config = UNI_CONFIG_INITIALIZER;
        config.transports = transport.c_str();
        config.timeout_ms = 400;
        uniComm_t comm = nullptr;
        const uniResult_t result = uniCommInitRankConfig(&comm, 3, id, rank, &config);
        // Whoever's time is up first leaves, which may be the other's error.
        EXPECT_TRUE(result == uniTimeout || result == uniRemoteError) << result;
        if (result == uniTimeout) timeouts++;
        EXPECT_EQ(comm, nullptr);
        expect_parts(uniGetLastError(nullptr), {"2"});
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_GE(timeouts, 1);
  }
}

}  // namespace
}  // namespace unisono::testing
