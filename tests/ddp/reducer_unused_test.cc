// Parameters that take no part: on some ranks, on all, said early, late or not at all, after
// no_sync, and in a static graph.
#include <barrier>

#include "tests/ddp/reducer_harness.h"

namespace unisono::testing {
namespace {

constexpr int kRanks = 3, kParameters = 6;

// Who uses what in iteration `i`: parameter 0 nobody, 1 rank 1 only, 2 all but rank 0, 3 changes
// with the iteration, 4 and 5 everybody.
bool uses(int rank, int parameter, int iteration) {
  switch (parameter) {
    case 0:
      return false;
    case 1:
      return rank == 1;
    case 2:
      return rank != 0;
    case 3:
      return (iteration + rank) % 2 == 0 && iteration % 3 != 2;
    default:
      return true;
  }
}
bool used_anywhere(int parameter, int iteration) {
  for (int r = 0; r < kRanks; r++) {
    if (uses(r, parameter, iteration)) return true;
  }
  return false;
}
double old_value(int rank, int parameter, size_t e) {
  return 1000 + 100 * rank + 10 * parameter + static_cast<double>(e % 7);
}
// Of the ranks that use it.
double average(int parameter, int iteration, size_t e) {
  double sum = 0;
  for (int r = 0; r < kRanks; r++) {
    if (uses(r, parameter, iteration)) sum += small_integer(r, iteration, parameter, e);
  }
  return sum;
}

enum class Say { kEarly, kLate, kNothing };

void mark_all(const Model& model, int rank, int iteration, Say say) {
  const auto mark_unused = [&] {
    for (int p = 0; p < kParameters; p++) {
      if (!uses(rank, p, iteration)) UNI_OK(uniReducerMarkUnused(model.reducer(), p));
    }
  };
  if (say == Say::kEarly) mark_unused();
  for (const int p : model.backward_order()) {
    if (uses(rank, p, iteration)) UNI_OK(uniReducerMarkReady(model.reducer(), p));
  }
  if (say == Say::kLate) mark_unused();
}

void fill_used(const Model& model, int rank, int iteration) {
  model.fill([&](int p, size_t e) {
    return uses(rank, p, iteration) ? gradient_of(kRanks, rank, iteration, p, e)
                                    : old_value(rank, p, e);
  });
}

void expect_result(const Model& model, int rank, int iteration) {
  EXPECT_EQ(model.wrong([&](int p, size_t e) {
    return used_anywhere(p, iteration) ? average(p, iteration, e) : old_value(rank, p, e);
  }),
            "")
      << "iteration " << iteration;
  int unused = 0;
  for (int p = 0; p < kParameters; p++) {
    int used = -1;
    UNI_OK(uniReducerUsed(model.reducer(), p, &used));
    EXPECT_EQ(used, used_anywhere(p, iteration) ? 1 : 0) << p;
    unused += 1 - used;
  }
  EXPECT_EQ(model.stats().unused, unused);
}

class ReducerUnused : public ::testing::TestWithParam<std::tuple<std::string, int, Say>> {
 protected:
  std::string transport() const { return std::get<0>(GetParam()); }
  uniReducerConfig_t config() const {
    uniReducerConfig_t config = small_buckets(std::get<1>(GetParam()));
    config.find_unused = 1;
    return config;
  }
  Say say() const { return std::get<2>(GetParam()); }
};

TEST_P(ReducerUnused, EverywhereKeepTheirGradientsAndSomewhereGiveNothingToTheAverage) {
  const Ranks world(kRanks, {transport()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    const Model model(comm, plain_specs(kParameters, 31), config());
    ASSERT_EQ(model.created(), uniSuccess) << model.words();
    for (int iteration = 0; iteration < 6; iteration++) {
      fill_used(model, rank, iteration);
      UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
      mark_all(model, rank, iteration, say());
      UNI_OK(uniReducerFinish(model.reducer()));
      expect_result(model, rank, iteration);
    }
  });
}

TEST_P(ReducerUnused, InTheSyncOnlyStillGiveWhatNoSyncAccumulated) {
  const Ranks world(kRanks, {transport()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    const Model model(comm, plain_specs(kParameters, 31), config());
    ASSERT_EQ(model.created(), uniSuccess) << model.words();
    for (int round = 0; round < 2; round++) {
      fill_used(model, rank, 0);
      UNI_OK(uniReducerBeginBackward(model.reducer(), 0));
      mark_all(model, rank, 0, say());
      UNI_OK(uniReducerFinish(model.reducer()));
      UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
      // Nothing is used now; only half of it is said.
      for (int p = 0; p < kParameters && say() != Say::kNothing; p += 2) {
        UNI_OK(uniReducerMarkUnused(model.reducer(), p));
      }
      UNI_OK(uniReducerFinish(model.reducer()));
      expect_result(model, rank, 0);
    }
    // And what was used then is not used in the next.
    model.fill([&](int p, size_t e) { return old_value(rank, p, e); });
    UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
    UNI_OK(uniReducerFinish(model.reducer()));
    EXPECT_EQ(model.wrong([&](int p, size_t e) { return old_value(rank, p, e); }), "");
    EXPECT_EQ(model.stats().unused, kParameters);
  });
}

TEST_P(ReducerUnused, OfAStaticGraphStaySoWithoutAMap) {
  const Ranks world(kRanks, {transport()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    uniReducerConfig_t settings = config();
    settings.static_graph = 1;
    settings.find_unused = say() == Say::kLate ? 0 : 1;  // Implied.
    const Model model(comm, plain_specs(kParameters, 31), settings);
    ASSERT_EQ(model.created(), uniSuccess) << model.words();
    const size_t bytes = kParameters * 31 * sizeof(float);
    for (int i = 0; i < 4; i++) {
      fill_used(model, rank, 0);
      UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
      mark_all(model, rank, 0, i == 3 ? Say::kNothing : say());  // Not necessary any more.
      UNI_OK(uniReducerFinish(model.reducer()));
      expect_result(model, rank, 0);
      EXPECT_EQ(model.stats().wire_bytes, i == 0 ? bytes + kParameters : bytes);
      EXPECT_EQ(model.stats().rebuilt, 1);
    }
  });
}

std::string name_of(const ::testing::TestParamInfo<ReducerUnused::ParamType>& info) {
  constexpr const char* kSay[] = {"_early", "_late", "_unsaid"};
  return std::get<0>(info.param) + (std::get<1>(info.param) != 0 ? "_views" : "_copies") +
         kSay[static_cast<int>(std::get<2>(info.param))];
}
INSTANTIATE_TEST_SUITE_P(
    All, ReducerUnused,
    ::testing::Combine(::testing::Values("shm", "sim"), ::testing::Values(0, 1),
                       ::testing::Values(Say::kEarly, Say::kLate, Say::kNothing)),
    name_of);

// Violations of a static graph: the words of the rank that commits it, an abort for the others.
TEST(ReducerStaticGraph, WhoseUseChangesIsAnErrorThatNamesTheParameter) {
  for (const bool used_before : {false, true}) {
    const Ranks world(2, {"shm"});
    ASSERT_TRUE(world.ok());
    // One rank's abort must not reach the other in the middle of what succeeds.
    std::barrier<> both(2);
    world.run([&](int rank, uniComm_t comm) {
      uniReducerConfig_t config = small_buckets();
      config.static_graph = 1;
      const Model model(comm, plain_specs(3, 5), config);
      EXPECT_EQ(model.created(), uniSuccess) << model.words();
      const std::vector<int> first =
          used_before ? std::vector<int>{2, 1, 0} : std::vector<int>{2, 0};
      model.iterate(first);
      UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
      for (const int i : {2, 0}) UNI_OK(uniReducerMarkReady(model.reducer(), i));
      both.arrive_and_wait();
      if (rank == 1 || used_before) {
        const uniResult_t result = used_before ? uniReducerMarkUnused(model.reducer(), 1)
                                               : uniReducerMarkReady(model.reducer(), 1);
        EXPECT_EQ(result, uniInvalidUsage);
        const std::string words = uniGetLastError(nullptr);
        EXPECT_NE(words.find("parameter 1 (p1)"), std::string::npos) << words;
        EXPECT_NE(words.find("static"), std::string::npos) << words;
      }
      both.arrive_and_wait();
      const uniResult_t result = uniReducerFinish(model.reducer());
      const std::string words = uniGetLastError(nullptr);
      if (rank == 1 || used_before) {
        EXPECT_EQ(result, uniInvalidUsage) << words;
        EXPECT_NE(words.find("1 (p1)"), std::string::npos) << words;
      } else {
        EXPECT_TRUE(result == uniSuccess || result == uniAborted) << words;
      }
    });
  }
}

// Frozen ones are simply not registered: every registered one is asked for.
TEST(ReducerUnusedMark, NeedsFindUnused) {
  const Ranks world(1, {"shm"});
  ASSERT_TRUE(world.ok());
  const Model model(world[0], plain_specs(2, 5), small_buckets());
  UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
  EXPECT_EQ(uniReducerMarkUnused(model.reducer(), 1), uniInvalidUsage);
  EXPECT_NE(std::string(uniGetLastError(nullptr)).find("find_unused"), std::string::npos);
  model.mark({0, 1});  // It is still to come.
  UNI_OK(uniReducerFinish(model.reducer()));
  int used = 0;
  UNI_OK(uniReducerUsed(model.reducer(), 1, &used));
  EXPECT_EQ(used, 1);
}

}  // namespace
}  // namespace unisono::testing
