// Communicators come and go without a trace in descriptors, threads, mappings and memory, and one
// of a single rank is small. UNISONO_TEST_FULL=1: 10,000 times.
#include <malloc.h>

#include <filesystem>
#include <fstream>

#include "tests/comm/collective_case.h"

namespace unisono::testing {
namespace {

struct Usage {
  size_t descriptors = 0, threads = 0, mappings = 0, resident_kib = 0;
};

size_t entries(const char* folder) {
  const std::filesystem::directory_iterator list(folder);
  return static_cast<size_t>(std::distance(begin(list), end(list)));
}

Usage usage() {
  malloc_trim(0);
  Usage now;
  now.descriptors = entries("/proc/self/fd");
  now.threads = entries("/proc/self/task");
  std::ifstream maps("/proc/self/maps"), status("/proc/self/status");
  for (std::string line; std::getline(maps, line);) now.mappings++;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) now.resident_kib = std::stoul(line.substr(6));
  }
  return now;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // its own bookkeeping grows
#else
constexpr bool kSanitized = false;
#endif

void cycle(int ranks, const std::string& transport) {
  const Ranks world(ranks, {transport});
  ASSERT_TRUE(world.ok());
  // One thread for all ranks: threads made here would blur what is counted.
  std::vector<float> in(static_cast<size_t>(ranks), 1), out(static_cast<size_t>(ranks));
  UNI_OK(uniGroupStart());
  for (int r = 0; r < ranks; r++) {
    const auto i = static_cast<size_t>(r);
    UNI_OK(uniAllReduce(&in[i], &out[i], 1, uniFloat32, uniSum, world[r], nullptr));
  }
  UNI_OK(uniGroupEnd());
  for (const float sum : out) EXPECT_EQ(sum, static_cast<float>(ranks));
}

class Lifecycle : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(Lifecycle, OfManyCommunicatorsLeavesNothingBehind) {
  const auto& [transport, ranks] = GetParam();
  const int cycles = sampled(10'000, 200, 40);
  for (int i = 0; i < 30; i++) cycle(ranks, transport);
  const Usage before = usage();
  for (int i = 0; i < cycles && !HasFailure(); i++) cycle(ranks, transport);
  const Usage after = usage();
  std::printf(
      "%d cycles of %d ranks over %s: descriptors %zu -> %zu, threads %zu -> %zu, "
      "mappings %zu -> %zu, resident %zu -> %zu KiB\n",
      cycles, ranks, transport.c_str(), before.descriptors, after.descriptors, before.threads,
      after.threads, before.mappings, after.mappings, before.resident_kib, after.resident_kib);
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  if (kSanitized) return;
  // The C library's arenas come with the threads that happen to run at once: a few, ever.
  EXPECT_LE(after.mappings, before.mappings + 16);
  EXPECT_LE(after.resident_kib, before.resident_kib + 4096);
}

INSTANTIATE_TEST_SUITE_P(
    All, Lifecycle, ::testing::Combine(::testing::Values("shm", "tcp"), ::testing::Values(1, 2)),
    [](const auto& one) {
      return std::get<0>(one.param) + "_" + std::to_string(std::get<1>(one.param));
    });

TEST(LifecycleOfStreams, LeavesNothingBehind) {
  auto one = [] {
    uniStream_t stream = nullptr;
    uniEvent_t event = nullptr;
    UNI_OK(uniStreamCreate(&stream));
    UNI_OK(uniEventCreate(&event));
    UNI_OK(uniStreamLaunchHostFunc(
        stream, [](void*, uniResult_t) {}, nullptr));
    UNI_OK(uniEventRecord(event, stream));
    UNI_OK(uniEventSynchronize(event, -1));
    UNI_OK(uniStreamDestroy(stream));
    UNI_OK(uniEventDestroy(event));
  };
  for (int i = 0; i < 20; i++) one();
  const Usage before = usage();
  for (int i = 0; i < (full() ? 10'000 : 500); i++) one();
  const Usage after = usage();
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  if (kSanitized) return;
  EXPECT_LE(after.mappings, before.mappings + 16);
}

TEST(LifecycleOfOneRank, TakesUnderAMegabyte) {
  constexpr size_t kLive = 100;
  for (const std::string transport : {"shm", "tcp", "shm,tcp"}) {
    const WorldSetup setup{transport};
    cycle(1, transport);
    const Usage before = usage();
    std::vector<std::unique_ptr<Ranks>> live;
    for (size_t i = 0; i < kLive; i++) {
      live.push_back(std::make_unique<Ranks>(1, setup));
      float in = 1, out = 0;
      UNI_OK(uniAllReduce(&in, &out, 1, uniFloat32, uniSum, (*live.back())[0], nullptr));
      uniCommInfo_t info{};
      info.size = sizeof info;
      UNI_OK(uniCommQuery((*live.back())[0], &info));
      EXPECT_LT(info.memory_bytes, 1u << 20);
      EXPECT_GT(info.memory_bytes, 0u);
    }
    const Usage after = usage();
    std::printf("one rank, %s: %zu KiB resident each\n", transport.c_str(),
                (after.resident_kib - before.resident_kib) / kLive);
    if (kSanitized) continue;
    EXPECT_LT(after.resident_kib, before.resident_kib + kLive * 1024);
  }
}

}  // namespace
}  // namespace unisono::testing
