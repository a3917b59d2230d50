// Gradients that become ready in another order on each rank: every rank launches the same buckets
// in the same order, nothing waits for ever, and the values are exact. In virtual time, so that a
// seed replays.
#include <algorithm>
#include <array>

#include "tests/ddp/reducer_harness.h"

namespace unisono::testing {
namespace {

// A user's hook: notes what is launched, and averages.
struct Recorder {
  std::vector<std::array<uint64_t, 4>> launches;  // Index, buckets, count, type.
  static uniResult_t hook(void* self, uniBucket_t* bucket) {
    EXPECT_EQ(bucket->size, sizeof(uniBucket_t));
    static_cast<Recorder*>(self)->launches.push_back(
        {static_cast<uint64_t>(bucket->index), static_cast<uint64_t>(bucket->buckets),
         bucket->count, static_cast<uint64_t>(bucket->type)});
    return uniHookAllReduce(nullptr, bucket);
  }
};

// In the simulator a rank's thread keeps its turn until it waits. This is a wait in it, so that
// other ranks, and the stream that is at work on the first buckets, come in between two marks.
class Turns {
 public:
  explicit Turns(uniComm_t comm) {
    UNI_OK(uniBarrier(comm, nullptr));  // Now this thread is one of the world's.
    UNI_OK(uniStreamCreate(&stream_));
    UNI_OK(uniBarrier(comm, stream_));  // And this stream.
    UNI_OK(uniStreamSynchronize(stream_));
    UNI_OK(uniEventCreate(&event_));
  }
  ~Turns() {
    UNI_OK(uniStreamDestroy(stream_));
    UNI_OK(uniEventDestroy(event_));
  }
  Turns(const Turns&) = delete;
  void give() const {
    UNI_OK(uniEventRecord(event_, stream_));
    UNI_OK(uniEventSynchronize(event_, -1));
  }

 private:
  uniStream_t stream_ = nullptr;
  uniEvent_t event_ = nullptr;
};

// Everything about a seed's run follows from the seed.
struct Plan {
  explicit Plan(int of) : seed(of), random(static_cast<unsigned>(of)) {
    ranks = pick(2, 4);
    views = pick(0, 1);
    find_unused = pick(0, 2) == 0 ? 1 : 0;
    constexpr uniDataType_t kTypes[] = {uniFloat16, uniBfloat16, uniFloat32, uniFloat64};
    const int parameters = pick(1, 14);
    for (int i = 0; i < parameters; i++) {
      const uniDataType_t type = kTypes[pick(0, 2) == 0 ? pick(0, 3) : 2];
      specs.push_back({type, {static_cast<size_t>(pick(0, 60))}, "p" + std::to_string(i)});
    }
    config = small_buckets(views);
    config.bucket_bytes = static_cast<size_t>(pick(1, 500));
    config.first_bucket_bytes = static_cast<size_t>(pick(1, 200));
    config.find_unused = find_unused;
    config.keep_buckets = pick(0, 3) == 0 ? 1 : 0;
  }
  int pick(int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); }
  std::vector<int> order(int rank, int iteration) const {
    std::vector<int> order(specs.size());
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 shuffler(static_cast<unsigned>(seed * 1000 + rank * 10 + iteration));
    std::shuffle(order.begin(), order.end(), shuffler);
    return order;
  }

  int seed;
  std::mt19937 random;
  int ranks = 0, views = 0, find_unused = 0;
  std::vector<Spec> specs;
  uniReducerConfig_t config;
};

constexpr int kIterations = 2;  // Before and after the buckets are rebuilt.

void run_rank(const Plan& plan, int rank, uniComm_t comm, Recorder* recorder,
              std::vector<size_t>* buckets) {
  const Turns turns(comm);
  std::mt19937 random(static_cast<unsigned>(plan.seed * 10 + rank));
  uniReducerConfig_t config = plan.config;
  config.hook = &Recorder::hook;
  config.hook_arg = recorder;
  const Model model(comm, plan.specs, config);
  ASSERT_EQ(model.created(), uniSuccess) << model.words();
  for (int iteration = 0; iteration < kIterations; iteration++) {
    fill_iteration(model, plan.ranks, rank, iteration);
    UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
    for (const int i : plan.order(rank, iteration)) {
      if (random() % 2 == 0) turns.give();
      UNI_OK(uniReducerMarkReady(model.reducer(), i));
    }
    UNI_OK(uniReducerFinish(model.reducer()));
    EXPECT_EQ(wrong_iteration(model, plan.ranks, iteration), "") << "iteration " << iteration;
    EXPECT_EQ(model.ready_order(), plan.order(rank, iteration));
  }
  *buckets = model.bucket_bytes();
}

TEST(ReducerOrder, OfLaunchIsTheSameOnEveryRankWhateverTheOrderOfReadiness) {
  const int seeds = sampled(1000, 1000, 100);
  size_t launches = 0;
  for (int seed = 1; seed <= seeds; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Plan plan(seed);
    const Ranks world(plan.ranks, {"sim:seed=" + std::to_string(seed)});
    ASSERT_TRUE(world.ok());
    std::vector<Recorder> recorders(static_cast<size_t>(plan.ranks));
    std::vector<std::vector<size_t>> buckets(static_cast<size_t>(plan.ranks));
    world.run([&](int rank, uniComm_t comm) {
      const auto r = static_cast<size_t>(rank);
      run_rank(plan, rank, comm, &recorders[r], &buckets[r]);
    });
    for (size_t r = 1; r < recorders.size(); r++) {
      ASSERT_EQ(recorders[r].launches, recorders[0].launches) << "rank " << r;
      ASSERT_EQ(buckets[r], buckets[0]) << "rank " << r;
    }
    // Each iteration counts from 0 to the number of buckets.
    uint64_t expected = 0;
    for (const auto& [index, of, count, type] : recorders[0].launches) {
      ASSERT_EQ(index, expected);
      expected = index + 1 == of ? 0 : index + 1;
    }
    EXPECT_EQ(expected, 0u);
    launches += recorders[0].launches.size();
    if (HasFailure()) return;  // One seed is enough to look into.
  }
  EXPECT_GT(launches, static_cast<size_t>(seeds) * kIterations);
}

TEST(ReducerOrder, OfRebuiltBucketsIsRankZeros) {
  constexpr int kRanks = 3;
  const std::vector<int> rank_zeros = {2, 0, 3, 1};
  const Ranks world(kRanks, {"sim"});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    // Sizes that tell the parameters apart; every parameter its own bucket.
    uniReducerConfig_t config = UNI_REDUCER_CONFIG_INITIALIZER;
    config.bucket_bytes = config.first_bucket_bytes = 1;
    std::vector<Spec> specs;
    for (size_t i = 0; i < 4; i++) specs.push_back({uniFloat32, {10 + i}, ""});
    const Model model(comm, specs, config);
    ASSERT_EQ(model.created(), uniSuccess) << model.words();
    EXPECT_EQ(model.bucket_bytes(), std::vector<size_t>{4 * (10 + 11 + 12 + 13)})
        << "one of the type until the order is known";
    EXPECT_EQ(model.stats().rebuilt, 0);
    std::vector<int> order = rank_zeros;
    if (rank != 0) std::rotate(order.begin(), order.begin() + rank, order.end());
    model.iterate(order);
    EXPECT_EQ(model.stats().rebuilt, 1);
    EXPECT_EQ(model.bucket_bytes(), (std::vector<size_t>{48, 40, 52, 44}));
    std::reverse(order.begin(), order.end());
    model.iterate(order);  // Once only.
    EXPECT_EQ(model.bucket_bytes(), (std::vector<size_t>{48, 40, 52, 44}));
    EXPECT_EQ(model.ready_order(), order);
  });
}

}  // namespace
}  // namespace unisono::testing
