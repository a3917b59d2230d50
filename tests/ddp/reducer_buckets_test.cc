// Which parameters share a bucket, against a computation of its own; what the statistics say of it.
#include <algorithm>

#include "tests/ddp/reducer_harness.h"

namespace unisono::testing {
namespace {

// The rule said once more, the slow way: walk the parameters of one type at a time, cut where the
// limit is reached, then sort by when a bucket is complete. Bytes of the buckets in that order.
std::vector<size_t> expected_buckets(const std::vector<Spec>& specs, const std::vector<int>& order,
                                     size_t bucket_bytes, size_t first_bucket_bytes) {
  std::vector<std::pair<size_t, size_t>> complete_at;  // Position, bytes.
  for (const uniDataType_t type : {uniFloat16, uniBfloat16, uniFloat32, uniFloat64}) {
    size_t limit = first_bucket_bytes, bytes = 0, last = SIZE_MAX;
    for (size_t position = 0; position < order.size(); position++) {
      const Spec& spec = specs[static_cast<size_t>(order[position])];
      if (spec.type != type) continue;
      bytes += spec.bytes();
      last = position;
      if (bytes >= limit) {
        complete_at.emplace_back(last, bytes);
        limit = bucket_bytes;
        bytes = 0;
        last = SIZE_MAX;
      }
    }
    if (last != SIZE_MAX) complete_at.emplace_back(last, bytes);
  }
  std::sort(complete_at.begin(), complete_at.end());
  std::vector<size_t> sizes;
  for (const auto& [position, bytes] : complete_at) sizes.push_back(bytes);
  return sizes;
}

// A convolutional network's shape of sizes, large to small and back, in all types.
std::vector<Spec> many_specs(int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<Spec> specs;
  for (int i = 0; i < 60; i++) {
    constexpr uniDataType_t kTypes[] = {uniFloat32, uniFloat32, uniFloat16, uniBfloat16,
                                        uniFloat64};
    specs.push_back(
        {kTypes[random() % 5], {random() % 4 == 0 ? random() % 400 : random() % 40}, ""});
  }
  return specs;
}

TEST(ReducerBuckets, AreThoseOfTheRuleWhenKeptAndWhenUnusedParametersAreSought) {
  const Ranks world(1, {"shm"});
  ASSERT_TRUE(world.ok());
  for (int seed = 0; seed < 20; seed++) {
    SCOPED_TRACE(seed);
    for (const bool keep : {true, false}) {
      uniReducerConfig_t config = small_buckets();
      (keep ? config.keep_buckets : config.find_unused) = 1;
      const std::vector<Spec> specs = many_specs(seed);
      const Model model(world[0], specs, config);
      ASSERT_EQ(model.created(), uniSuccess) << model.words();
      const auto expected = expected_buckets(specs, model.backward_order(), 600, 100);
      EXPECT_GT(expected.size(), 8u);
      EXPECT_EQ(model.bucket_bytes(), expected);
      std::vector<int> order(specs.size());
      std::iota(order.begin(), order.end(), 0);
      model.iterate(order);
      EXPECT_EQ(model.bucket_bytes(), expected) << "never rebuilt";
      EXPECT_EQ(model.stats().rebuilt, 0);
    }
  }
}

TEST(ReducerBuckets, AreOneOfEachTypeFirstAndFollowReadinessAfterwards) {
  const Ranks world(1, {"shm"});
  ASSERT_TRUE(world.ok());
  for (int seed = 0; seed < 20; seed++) {
    SCOPED_TRACE(seed);
    const std::vector<Spec> specs = many_specs(seed);
    const Model model(world[0], specs, small_buckets(seed % 2));
    ASSERT_EQ(model.created(), uniSuccess) << model.words();
    EXPECT_EQ(model.bucket_bytes(),
              expected_buckets(specs, model.backward_order(), SIZE_MAX, SIZE_MAX));
    std::vector<int> order(specs.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(seed)));
    model.fill([](int p, size_t e) { return p + static_cast<double>(e % 7); });
    model.iterate(order, 0);  // Readiness of an iteration without synchronisation says nothing.
    EXPECT_EQ(model.stats().rebuilt, 0);
    std::rotate(order.begin(), order.begin() + 5, order.end());
    model.iterate(order);
    EXPECT_EQ(model.stats().rebuilt, 1);
    EXPECT_EQ(model.bucket_bytes(), expected_buckets(specs, order, 600, 100));
    EXPECT_EQ(model.wrong([](int p, size_t e) { return p + static_cast<double>(e % 7); }), "")
        << "contents go along";
  }
}

TEST(ReducerBuckets, HaveTheDocumentedDefaultSizes) {
  const Ranks world(1, {"shm"});
  ASSERT_TRUE(world.ok());
  // 1 MiB, then 25 MiB; a parameter is added before the bucket is closed.
  constexpr size_t kMebi = size_t{1} << 20;
  std::vector<Spec> specs(15, {uniFloat32, {kMebi}, ""});  // 4 MiB each.
  specs.push_back({uniFloat32, {10}, "last"});
  uniReducerConfig_t config = UNI_REDUCER_CONFIG_INITIALIZER;
  config.keep_buckets = 1;
  config.bucket_views = 1;
  const Model model(world[0], specs, config);
  ASSERT_EQ(model.created(), uniSuccess) << model.words();
  EXPECT_EQ(model.bucket_bytes(), (std::vector<size_t>{4 * kMebi + 40, 28 * kMebi, 28 * kMebi}));
}

TEST(ReducerStatistics, CountBytesExactlyAndTimesInOrder) {
  constexpr int kRanks = 2;
  const Ranks world(kRanks, {"shm"});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    const std::vector<Spec> specs = mixed_specs();
    size_t bytes = 0;
    for (const Spec& spec : specs) bytes += spec.bytes();
    uniReducerConfig_t config = small_buckets();
    config.find_unused = 1;
    const Model model(comm, specs, config);
    ASSERT_EQ(model.created(), uniSuccess) << model.words();
    for (int iteration = 1; iteration <= 3; iteration++) {
      if (iteration > 1) UNI_OK(uniReducerBeginForward(model.reducer()));
      fill_iteration(model, kRanks, rank, iteration);
      model.iterate();
      const uniReducerStats_t stats = model.stats();
      EXPECT_EQ(stats.iterations, static_cast<uint64_t>(iteration));
      EXPECT_EQ(stats.gradient_bytes, bytes);
      EXPECT_EQ(stats.wire_bytes, bytes + specs.size()) << "and one byte of map a parameter";
      EXPECT_GE(stats.memory_bytes, bytes);
      EXPECT_LT(stats.memory_bytes, bytes + 64 * static_cast<size_t>(stats.buckets));
      EXPECT_EQ(stats.parameters, static_cast<int>(specs.size()));
      EXPECT_EQ(stats.unused, 0);
      EXPECT_EQ(stats.forward_us > 0, iteration > 1);
      EXPECT_GT(stats.backward_us, 0);
      EXPECT_GT(stats.communication_us, 0);
      EXPECT_GT(stats.exposed_us, 0);
      EXPECT_LE(stats.overlap_us, stats.communication_us);
      EXPECT_LE(stats.overlap_us, stats.backward_us);
      // What is neither hidden nor waited for does not exist.
      EXPECT_LE(stats.communication_us, stats.overlap_us + stats.exposed_us + 0.01);
    }
    int parameters = 0, sum = 0;
    for (int b = 0; b < model.stats().buckets; b++) {
      size_t of = 0;
      UNI_OK(uniReducerBucketSize(model.reducer(), b, &of, &parameters));
      sum += parameters;
    }
    EXPECT_EQ(sum, model.count());
    // An older caller's shorter struct is filled as far as it goes.
    uniReducerStats_t shorter{};
    shorter.size = offsetof(uniReducerStats_t, backward_us);
    shorter.backward_us = -1;
    UNI_OK(uniReducerStats(model.reducer(), &shorter));
    EXPECT_EQ(shorter.iterations, 3u);
    EXPECT_EQ(shorter.backward_us, -1);
  });
}

}  // namespace
}  // namespace unisono::testing
