// Size and number: hundreds of simulated ranks through the public API, replay of a seed, more than
// 2^31 bytes, registered memory, idle waiting that uses no processor.
#include <sys/resource.h>
#include <time.h>

#include <cstdint>

#include "tests/comm/collective_case.h"

namespace unisono::testing {
namespace {

TEST(Simulation, RunsTwoHundredRanksThroughThePublicApi) {
  const int ranks = sampled(500, 200, 50);
  const Ranks world(ranks, {"sim:seed=3"});
  ASSERT_TRUE(world.ok());
  run_cases(world, {{Kind::kAllReduce, uniInt64, uniSum, 1000, 0, false},
                    {Kind::kBroadcast, uniInt32, uniSum, 5000, 7, false},
                    {Kind::kBarrier, uniInt32, uniSum, 0, 0, false}});
}

// Timings in virtual time are part of what a seed fixes: equal results of RecvAny's order show
// equal interleavings.
std::vector<int> arrival_order(const std::string& options) {
  const int ranks = 9;
  const Ranks world(ranks, {"sim:" + options});
  std::vector<int> order;
  world.run([&](int rank, uniComm_t comm) {
    int32_t value = rank;
    if (rank != 0) {
      UNI_OK(uniSend(&value, 1, uniInt32, 0, comm, nullptr));
      return;
    }
    for (int i = 1; i < ranks; i++) {
      int source = -1;
      UNI_OK(uniRecvAny(&value, 1, uniInt32, &source, comm, nullptr));
      order.push_back(source);
    }
  });
  return order;
}

TEST(Simulation, ReplaysASeedAndVariesWithIt) {
  const std::vector<int> once = arrival_order("seed=11,jitter=4");
  EXPECT_EQ(once, arrival_order("seed=11,jitter=4"));
  bool differs = false;
  for (int seed = 12; seed < 20; seed++) {
    differs = differs || arrival_order("seed=" + std::to_string(seed) + ",jitter=4") != once;
  }
  EXPECT_TRUE(differs);
}

TEST(Scale, CountsBeyondTwoToThe31BytesWork) {
#ifdef UNISONO_TSAN
  GTEST_SKIP() << "the thread sanitizer's shadow of the buffers would take 16 GiB";
#endif
  // 2^31 + 16 bytes a rank and buffer: broadcast in place over two ranks.
  const size_t count = (size_t{1} << 31) + 16;
  // A rank may need minutes to fill its buffer: built for coverage, on a busy machine.
  const Ranks world(2, {"shm", "", false, 600'000});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    std::vector<uint8_t> data(count, rank == 0 ? 1 : 0);
    if (rank == 0) data[count - 1] = 77;
    UNI_OK(uniBroadcast(data.data(), data.data(), count, uniUint8, 0, comm, nullptr));
    EXPECT_EQ(data[0], 1);
    EXPECT_EQ(data[(size_t{1} << 31) + 3], 1);
    EXPECT_EQ(data[count - 1], 77);
    for (size_t i = 0; i + 1 < count; i += 4099) {
      if (data[i] == 1) continue;
      ADD_FAILURE() << "byte " << i;
      break;
    }
  });
}

TEST(RegisteredMemory, GivesTheSameResultsInPlaceAndNot) {
  for (const std::string transport : {"shm", "tcp", "sim"}) {
    for (const std::string algorithm : {"", "direct", "ring", "binomial_tree"}) {
      const int ranks = 3;
      const Ranks world(ranks, {transport, algorithm});
      ASSERT_TRUE(world.ok());
      world.run([&](int rank, uniComm_t comm) {
        const size_t count = 400'007, bytes = count * sizeof(float);
        void *in = nullptr, *out = nullptr, *in_handle = nullptr, *out_handle = nullptr;
        UNI_OK(uniMemAlloc(&in, bytes));
        UNI_OK(uniMemAlloc(&out, bytes));
        UNI_OK(uniCommRegister(comm, in, bytes, &in_handle));
        UNI_OK(uniCommRegister(comm, out, bytes, &out_handle));
        for (int repeat = 0; repeat < 3; repeat++) {
          for (const bool in_place : {false, true}) {
            const std::vector<char> mine = inputs(uniFloat32, uniSum, rank, 0, count);
            void* from = in_place ? out : in;
            std::memcpy(from, mine.data(), bytes);
            UNI_OK(uniAllReduce(from, out, count, uniFloat32, uniSum, comm, nullptr));
            const std::vector<char> want = reduced(uniFloat32, uniSum, ranks, 0, count);
            EXPECT_EQ(std::memcmp(out, want.data(), bytes), 0)
                << transport << " " << algorithm << " " << in_place;
          }
        }
        UNI_OK(uniCommDeregister(comm, in_handle));
        UNI_OK(uniCommDeregister(comm, out_handle));
        UNI_OK(uniMemFree(in));
        UNI_OK(uniMemFree(out));
      });
    }
  }
}

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The waiting rank's own deadline ends the wait; what is measured is processor time, not how long
// anything took.
TEST(Waiting, UsesUnderTwoPercentOfAProcessor) {
  const int64_t wait_ms = full() ? 10'000 : 3'000;
  for (const std::string transport : {"shm", "tcp"}) {
    const Ranks world(2, {transport});
    ASSERT_TRUE(world.ok());
    UNI_OK(uniCommSetTimeout(world[0], wait_ms));
    float x = 1;
    const double before = cpu_seconds();
    EXPECT_EQ(uniAllReduce(&x, &x, 1, uniFloat32, uniSum, world[0], nullptr), uniTimeout);
    const double share = (cpu_seconds() - before) / (static_cast<double>(wait_ms) * 1e-3);
    std::printf("%s: %.3f %% of a processor while waiting %lld ms\n", transport.c_str(),
                share * 100, static_cast<long long>(wait_ms));
    EXPECT_LT(share, 0.02);
  }
}

}  // namespace
}  // namespace unisono::testing
