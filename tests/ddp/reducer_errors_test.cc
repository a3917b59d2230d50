// Misuse and disagreement: the error names parameter, rank and shape; no peer is left waiting.
#include "tests/ddp/reducer_harness.h"

namespace unisono::testing {
namespace {

void expect_words(uniResult_t result, uniResult_t expected, const std::vector<std::string>& parts) {
  const std::string words = uniGetLastError(nullptr);
  EXPECT_EQ(result, expected) << words;
  for (const std::string& part : parts) {
    EXPECT_NE(words.find(part), std::string::npos) << "'" << part << "' is not in: " << words;
  }
}

// ---- Marks and states

TEST(ReducerMisuse, MarkingTwiceIsAnErrorNowAndAtFinishAndAbortsThePeers) {
  const Ranks world(2, {"shm"});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    uniReducerConfig_t config = small_buckets();
    config.find_unused = 1;
    const Model model(comm, plain_specs(3, 5), config);
    ASSERT_EQ(model.created(), uniSuccess) << model.words();
    UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
    UNI_OK(uniReducerMarkReady(model.reducer(), 2));
    UNI_OK(uniReducerMarkUnused(model.reducer(), 1));
    if (rank == 0) {
      expect_words(uniReducerMarkReady(model.reducer(), 2), uniInvalidUsage,
                   {"parameter 2 (p2)", "marked ready twice"});
      expect_words(uniReducerMarkReady(model.reducer(), 1), uniInvalidUsage,
                   {"parameter 1 (p1)", "marked ready after it had been marked unused"});
    }
    const uniResult_t result = uniReducerFinish(model.reducer());
    if (rank == 0) {
      expect_words(result, uniInvalidUsage, {"parameter 2 (p2)", "marked ready twice"});
    } else {
      expect_words(result, uniAborted, {"rank 0"});
    }
    uniResult_t failed = uniSuccess;
    UNI_OK(uniCommGetAsyncError(comm, &failed));
    EXPECT_EQ(failed, uniAborted);
  });
}

TEST(ReducerMisuse, DestroyingTheCommunicatorFirstIsRefusedAndChangesNothing) {
  uniComm_t comm = nullptr;
  UNI_OK(uniCommInitAll(&comm, 1, nullptr));
  auto model = std::make_unique<Model>(comm, plain_specs(3, 5), small_buckets());
  auto second = std::make_unique<Model>(comm, plain_specs(3, 5), small_buckets());
  expect_words(uniCommDestroy(comm), uniInvalidUsage,
               {"comm", "borrowed by a reducer", "uniReducerDestroy comes first"});
  model->iterate();
  model.reset();
  expect_words(uniCommDestroy(comm), uniInvalidUsage, {"borrowed by a reducer"});
  UNI_OK(uniCommFinalize(comm));
  second.reset();
  UNI_OK(uniCommDestroy(comm));
}

TEST(ReducerMisuse, BeginBeforeFinishNamesTheParametersThatAreNotReady) {
  const Ranks world(1, {"shm"});
  ASSERT_TRUE(world.ok());
  const Model model(world[0], plain_specs(9, 5), small_buckets());
  for (const int sync : {0, 1}) {
    UNI_OK(uniReducerBeginForward(model.reducer()));
    UNI_OK(uniReducerBeginBackward(model.reducer(), sync));
    model.mark({8, 7});
    const std::vector<std::string> words = {"rank 0", "before uniReducerFinish",
                                            "0 (p0), 1 (p1), 2 (p2), 3 (p3), 4 (p4) and 2 more"};
    expect_words(uniReducerBeginBackward(model.reducer(), sync), uniInvalidUsage, words);
    expect_words(uniReducerBeginForward(model.reducer()), uniInvalidUsage, words);
    expect_words(uniReducerSetGradient(model.reducer(), 0, model.gradient(0)), uniInvalidUsage,
                 words);
    int used = 0;
    expect_words(uniReducerUsed(model.reducer(), 0, &used), uniInvalidUsage, words);
    model.mark({6, 5, 4, 3, 2, 1, 0});
    expect_words(uniReducerBeginBackward(model.reducer(), sync), uniInvalidUsage,
                 {"all parameters are ready"});
    UNI_OK(uniReducerFinish(model.reducer()));
  }
}

TEST(ReducerMisuse, NeverMarkedIsReportedByEachRankInItsOwnWords) {
  // Every rank lacks others; rank 2 lacks none, and learns of the abort.
  for (const std::string transport : {"shm", "sim"}) {
    const Ranks world(3, {transport});
    ASSERT_TRUE(world.ok());
    world.run([&](int rank, uniComm_t comm) {
      const Model model(comm, plain_specs(8, 5), small_buckets());
      ASSERT_EQ(model.created(), uniSuccess) << model.words();
      UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
      for (const int i : model.backward_order()) {
        if (rank == 0 && i == 3) continue;
        if (rank == 1 && i != 4) continue;
        UNI_OK(uniReducerMarkReady(model.reducer(), i));
      }
      const uniResult_t result = uniReducerFinish(model.reducer());
      if (rank == 0) {
        expect_words(result, uniInvalidUsage, {"rank 0", "3 (p3) was never marked", "find_unused"});
      } else if (rank == 1) {
        expect_words(result, uniInvalidUsage,
                     {"rank 1", "0 (p0), 1 (p1), 2 (p2), 3 (p3), 5 (p5) and 2 more were never"});
      } else {
        expect_words(result, uniAborted, {"uniCommAbort"});
      }
    });
  }
}

TEST(ReducerMisuse, OutsideOfAnIterationIsAnErrorThatChangesNothing) {
  const Ranks world(1, {"shm"});
  ASSERT_TRUE(world.ok());
  const Model model(world[0], plain_specs(2, 5), small_buckets());
  int used = 0, order[2];
  expect_words(uniReducerMarkReady(model.reducer(), 1), uniInvalidUsage,
               {"uniReducerMarkReady", "parameter 1 (p1)", "rank 0"});
  expect_words(uniReducerFinish(model.reducer()), uniInvalidUsage,
               {"uniReducerFinish", "without uniReducerBeginBackward"});
  expect_words(uniReducerUsed(model.reducer(), 0, &used), uniInvalidUsage, {"no synchronised"});
  expect_words(uniReducerReadyOrder(model.reducer(), order), uniInvalidUsage, {"no iteration"});
  model.iterate();
  expect_words(uniReducerMarkUnused(model.reducer(), 0), uniInvalidUsage, {"parameter 0 (p0)"});
  model.iterate();
}

// ---- Arguments

TEST(ReducerArguments, ThatAreWrongAreNamed) {
  const Ranks world(1, {"shm"});
  ASSERT_TRUE(world.ok());
  const Model model(world[0], plain_specs(2, 5), small_buckets());
  const uniReducer_t reducer = model.reducer();
  const std::vector<std::string> range = {"parameter: 2 is not between 0 and 1"};
  void* pointer = nullptr;
  int number = 0;
  size_t bytes = 0;
  uniReducerStats_t stats{};
  expect_words(uniReducerMarkReady(reducer, 2), uniInvalidArgument, range);
  expect_words(uniReducerMarkUnused(reducer, 2), uniInvalidArgument, range);
  expect_words(uniReducerMarkReady(reducer, -1), uniInvalidArgument, {"parameter: -1"});
  expect_words(uniReducerGradient(reducer, 2, &pointer), uniInvalidArgument, range);
  expect_words(uniReducerGradient(reducer, 0, nullptr), uniInvalidArgument, {"grad: is null"});
  expect_words(uniReducerSetGradient(reducer, 0, nullptr), uniInvalidArgument, {"grad: is null"});
  expect_words(uniReducerUsed(reducer, 0, nullptr), uniInvalidArgument, {"used: is null"});
  expect_words(uniReducerUsed(reducer, 2, &number), uniInvalidArgument, range);
  expect_words(uniReducerBeginBackward(reducer, 2), uniInvalidArgument, {"sync: 2"});
  expect_words(uniReducerStats(reducer, nullptr), uniInvalidArgument, {"stats: is null"});
  expect_words(uniReducerStats(reducer, &stats), uniInvalidArgument, {"stats.size: 0"});
  expect_words(uniReducerBucketSize(reducer, 1, &bytes, &number), uniInvalidArgument,
               {"bucket: 1 is not between 0 and 0"});
  expect_words(uniReducerBucketSize(reducer, 0, nullptr, &number), uniInvalidArgument, {"bytes"});
  expect_words(uniReducerBucketSize(reducer, 0, &bytes, nullptr), uniInvalidArgument,
               {"parameters: is null"});
  expect_words(uniReducerReadyOrder(reducer, nullptr), uniInvalidArgument, {"order: is null"});
  for (const uniResult_t result :
       {uniReducerMarkReady(nullptr, 0), uniReducerMarkUnused(nullptr, 0),
        uniReducerFinish(nullptr), uniReducerBeginForward(nullptr),
        uniReducerBeginBackward(nullptr, 1), uniReducerGradient(nullptr, 0, &pointer),
        uniReducerSetGradient(nullptr, 0, &bytes), uniReducerUsed(nullptr, 0, &number),
        uniReducerSetHook(nullptr, nullptr, nullptr), uniReducerStats(nullptr, &stats),
        uniReducerBucketSize(nullptr, 0, &bytes, &number),
        uniReducerReadyOrder(nullptr, &number)}) {
    expect_words(result, uniInvalidArgument, {"reducer: is null"});
  }
  UNI_OK(uniReducerDestroy(nullptr));
  const Model views(world[0], plain_specs(2, 5), small_buckets(1));
  expect_words(uniReducerSetGradient(views.reducer(), 0, &bytes), uniInvalidUsage,
               {"bucket_views"});
}

TEST(ReducerArguments, OfCreationThatAreWrongAreNamed) {
  const Ranks world(1, {"shm"});
  ASSERT_TRUE(world.ok());
  float data[6] = {};
  const size_t shape[] = {2, 3}, huge[] = {SIZE_MAX / 2, 3}, none[] = {SIZE_MAX / 2, 3, 0};
  const uniParameter_t good{"w", data, uniFloat32, 2, shape};
  uniReducer_t reducer = nullptr;
  const auto create = [&](const uniParameter_t& parameter, const uniReducerConfig_t* config) {
    const uniParameter_t both[] = {good, parameter};
    return uniReducerCreate(&reducer, world[0], both, 2, config);
  };
  uniParameter_t bad = good;
  bad.grad = nullptr;
  expect_words(create(bad, nullptr), uniInvalidArgument, {"parameters[1] (w).grad: is null"});
  bad = good, bad.type = uniInt32, bad.name = nullptr;
  expect_words(create(bad, nullptr), uniInvalidArgument, {"parameters[1].type: 2"});
  const int no_type = 99;
  bad = good;
  std::memcpy(&bad.type, &no_type, sizeof bad.type);
  expect_words(create(bad, nullptr), uniInvalidArgument, {"parameters[1] (w).type: 99"});
  bad = good, bad.dims = 17;
  expect_words(create(bad, nullptr), uniInvalidArgument, {"parameters[1] (w).dims: 17"});
  bad = good, bad.shape = nullptr;
  expect_words(create(bad, nullptr), uniInvalidArgument, {"parameters[1] (w).shape: is null"});
  bad = good, bad.shape = huge;
  expect_words(create(bad, nullptr), uniInvalidArgument, {"parameters[1] (w).shape", "too large"});
  EXPECT_EQ(reducer, nullptr);
  bad = good, bad.shape = none, bad.dims = 3, bad.grad = nullptr;
  UNI_OK(create(bad, nullptr));  // No elements: nothing overflows, nothing need be there.
  UNI_OK(uniReducerDestroy(std::exchange(reducer, nullptr)));

  const auto refused = [&](auto change, const std::string& words) {
    uniReducerConfig_t config = UNI_REDUCER_CONFIG_INITIALIZER;
    change(config);
    expect_words(create(good, &config), uniInvalidArgument, {words});
    EXPECT_EQ(reducer, nullptr);
  };
  refused([](uniReducerConfig_t& c) { c.magic = 1; }, "UNI_REDUCER_CONFIG_INITIALIZER");
  refused([](uniReducerConfig_t& c) { c.size = 4; }, "config.size: 4");
  refused([](uniReducerConfig_t& c) { c.bucket_views = 2; }, "config.bucket_views: 2");
  refused([](uniReducerConfig_t& c) { c.find_unused = -1; }, "config.find_unused: -1");
  refused([](uniReducerConfig_t& c) { c.static_graph = 3; }, "config.static_graph: 3");
  refused([](uniReducerConfig_t& c) { c.keep_buckets = 4; }, "config.keep_buckets: 4");
  expect_words(uniReducerCreate(nullptr, world[0], &good, 1, nullptr), uniInvalidArgument,
               {"reducer: is null"});
  expect_words(uniReducerCreate(&reducer, nullptr, &good, 1, nullptr), uniInvalidArgument,
               {"comm: is null"});
  expect_words(uniReducerCreate(&reducer, world[0], nullptr, 1, nullptr), uniInvalidArgument,
               {"parameters: is null"});
  expect_words(uniReducerCreate(&reducer, world[0], &good, 0, nullptr), uniInvalidArgument,
               {"count: 0"});
  // A config of an older library ends earlier: the rest keeps its defaults.
  uniReducerConfig_t older = UNI_REDUCER_CONFIG_INITIALIZER;
  older.size = offsetof(uniReducerConfig_t, bucket_views);
  older.bucket_views = 77;
  UNI_OK(create(good, &older));
  UNI_OK(uniReducerDestroy(reducer));
}

// ---- Ranks that differ

struct Difference {
  const char* name;
  void (*change)(std::vector<Spec>&, uniReducerConfig_t&);
  std::vector<std::string> words;
};

class ReducerDifference : public ::testing::TestWithParam<Difference> {};

TEST_P(ReducerDifference, FailsOnEveryRankWithTheSameWordsAndLeavesTheCommunicatorUsable) {
  const Ranks world(4, {"shm"});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    std::vector<Spec> specs = mixed_specs();
    uniReducerConfig_t config = small_buckets();
    if (rank == 2) GetParam().change(specs, config);
    if (rank == 3) specs.clear(), specs = plain_specs(3, 3);  // The lowest rank is named.
    const Model model(comm, specs, config);
    EXPECT_EQ(model.created(), uniMismatch);
    for (const std::string& part : GetParam().words) {
      EXPECT_NE(model.words().find(part), std::string::npos) << part << ": " << model.words();
    }
    const Model again(comm, mixed_specs(), small_buckets());
    EXPECT_EQ(again.created(), uniSuccess) << again.words();
  });
}

INSTANTIATE_TEST_SUITE_P(
    Each, ReducerDifference,
    ::testing::Values(
        Difference{
            "Shape",
            [](std::vector<Spec>& s, uniReducerConfig_t&) {
              s[3].shape = {2, 33};
            },
            {"parameter 3 (brain)", "bfloat16 [33, 2] on rank 0", "bfloat16 [2, 33] on rank 2"}},
        Difference{"Scalar",
                   [](std::vector<Spec>& s, uniReducerConfig_t&) { s[2].shape = {1}; },
                   {"parameter 2 (scalar)", "float32 [] on rank 0", "float32 [1] on rank 2"}},
        Difference{"Type",
                   [](std::vector<Spec>& s, uniReducerConfig_t&) { s[1].type = uniBfloat16; },
                   {"parameter 1 (half)", "float16 [5] on rank 0", "bfloat16 [5] on rank 2"}},
        Difference{"Name",
                   [](std::vector<Spec>& s, uniReducerConfig_t&) { s[6].name = "x"; },
                   {"parameter 6", "called '' on rank 0", "'x' on rank 2"}},
        Difference{"Count",
                   [](std::vector<Spec>& s, uniReducerConfig_t&) { s.pop_back(); },
                   {"count: 12 parameters on rank 0", "11 on rank 2"}},
        Difference{"BucketBytes",
                   [](std::vector<Spec>&, uniReducerConfig_t& c) { c.bucket_bytes = 7; },
                   {"config.bucket_bytes is 600 on rank 0", "7 on rank 2"}},
        Difference{"FirstBucketBytes",
                   [](std::vector<Spec>&, uniReducerConfig_t& c) { c.first_bucket_bytes = 7; },
                   {"config.first_bucket_bytes is 100 on rank 0", "7 on rank 2"}},
        Difference{"FindUnused",
                   [](std::vector<Spec>&, uniReducerConfig_t& c) { c.find_unused = 1; },
                   {"config.find_unused is 0 on rank 0", "1 on rank 2"}},
        Difference{"StaticGraph",
                   [](std::vector<Spec>&, uniReducerConfig_t& c) { c.static_graph = 1; },
                   {"config.static_graph is 0 on rank 0", "1 on rank 2"}},
        Difference{"KeepBuckets",
                   [](std::vector<Spec>&, uniReducerConfig_t& c) { c.keep_buckets = 1; },
                   {"config.keep_buckets is 0 on rank 0", "1 on rank 2"}},
        Difference{
            "Hook",
            [](std::vector<Spec>&, uniReducerConfig_t& c) { c.hook = uniHookFloat16Compress; },
            {"config.hook is", "on rank 0", "on rank 2"}}),
    [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace unisono::testing
