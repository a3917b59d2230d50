// What a gradient is after uniReducerFinish: the average over ranks, in every type, with and
// without bucket views, before and after the buckets are rebuilt, also of what no_sync has
// accumulated.
#include "tests/ddp/reducer_harness.h"

namespace unisono::testing {
namespace {

using Case = std::tuple<std::string, int, int>;
class ReducerValues : public ::testing::TestWithParam<Case> {
 protected:
  std::string transport() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  int views() const { return std::get<2>(GetParam()); }
};

TEST_P(ReducerValues, EveryGradientIsTheAverageOverRanks) {
  const Ranks world(ranks(), {transport()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    const Model model(comm, mixed_specs(), small_buckets(views()));
    ASSERT_EQ(model.created(), uniSuccess) << model.words();
    for (int iteration = 0; iteration < 4; iteration++) {
      fill_iteration(model, ranks(), rank, iteration);
      model.iterate();
      EXPECT_EQ(wrong_iteration(model, ranks(), iteration), "") << "iteration " << iteration;
    }
    EXPECT_EQ(model.stats().iterations, 4u);
    EXPECT_EQ(model.stats().rebuilt, 1);
  });
}

TEST_P(ReducerValues, TheSyncAfterNoSyncReducesTheAccumulatedSum) {
  const Ranks world(ranks(), {transport()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    const Model model(comm, mixed_specs(), small_buckets(views()));
    ASSERT_EQ(model.created(), uniSuccess) << model.words();
    for (int round = 0; round < 2; round++) {
      model.fill([](int, size_t) { return 0; });
      for (int i = 0; i < 3; i++) {
        model.fill([&](int p, size_t e) {
          return model.read(p, e) + gradient_of(ranks(), rank, 3 * round + i, p, e);
        });
        UNI_OK(uniReducerBeginBackward(model.reducer(), i == 2 ? 1 : 0));
        model.mark(model.backward_order());
        if (i < 2) {  // nothing is touched
          const double before = model.read(7, 999);
          UNI_OK(uniReducerFinish(model.reducer()));
          EXPECT_EQ(model.read(7, 999), before);
        } else {
          UNI_OK(uniReducerFinish(model.reducer()));
        }
      }
      EXPECT_EQ(model.wrong([&](int p, size_t e) {
        return average_of(ranks(), 3 * round, p, e) + average_of(ranks(), 3 * round + 1, p, e) +
               average_of(ranks(), 3 * round + 2, p, e);
      }),
                "");
      EXPECT_EQ(model.stats().iterations, static_cast<uint64_t>(round + 1));
    }
  });
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param)) +
         (std::get<2>(info.param) != 0 ? "_views" : "_copies");
}
INSTANTIATE_TEST_SUITE_P(Ranks, ReducerValues,
                         ::testing::Combine(::testing::Values("shm", "sim", "tcp"),
                                            ::testing::Range(1, 6), ::testing::Values(0, 1)),
                         name_of);

// Two ranks, so that the sum has one rounding whatever its order.
// float16 is divided before the sum, as it could overflow; bfloat16, with float32's range, after
// it.
TEST(ReducerBits, SixteenBitGradientsAreAveragedInFloat32AndRoundedToNearestEven) {
  constexpr size_t kPatterns = 65536;
  const Ranks world(2, {"shm"});
  ASSERT_TRUE(world.ok());
  for (const uniDataType_t type : {uniFloat16, uniBfloat16}) {
    world.run([&](int rank, uniComm_t comm) {
      const Model model(comm, {{type, {kPatterns}, "all"}}, small_buckets());
      ASSERT_EQ(model.created(), uniSuccess) << model.words();
      const auto pattern = [=](int of, size_t e) {
        return static_cast<uint16_t>(of == 0 ? e : (e * 40503u + 977u) % kPatterns);
      };
      for (size_t e = 0; e < kPatterns; e++) {
        const uint16_t bits = pattern(rank, e);
        std::memcpy(model.gradient(0) + 2 * e, &bits, 2);
      }
      model.iterate();
      int wrong = 0;
      for (size_t e = 0; e < kPatterns; e++) {
        float sum = 0;
        for (int r = 0; r < 2; r++) {
          const float value = half_to_float(pattern(r, e), type);
          sum +=
              type == uniBfloat16 ? value : half_to_float(float_to_half(value * 0.5f, type), type);
        }
        if (type == uniBfloat16) sum *= 0.5f;
        const float expected = half_to_float(float_to_half(sum, type), type);
        const auto got = static_cast<float>(model.read(0, e));
        if (!(got == expected || (got != got && expected != expected)) && wrong++ < 3) {
          ADD_FAILURE() << "element " << e << ": " << got << " instead of " << expected;
        }
      }
      EXPECT_EQ(wrong, 0);
    });
  }
}

TEST(ReducerBits, AreTheSameWithViewsWithoutThemAndWithTheAveragingHook) {
  constexpr int kRanks = 3;
  const Ranks world(kRanks, {"shm"});
  ASSERT_TRUE(world.ok());
  std::vector<std::vector<double>> results(3);
  for (int way = 0; way < 3; way++) {
    world.run([&](int rank, uniComm_t comm) {
      uniReducerConfig_t config = small_buckets(way == 1 ? 1 : 0);
      if (way == 2) config.hook = uniHookAllReduce;
      const Model model(comm, mixed_specs(), config);
      ASSERT_EQ(model.created(), uniSuccess) << model.words();
      std::mt19937 random(static_cast<unsigned>(rank));
      std::normal_distribution<double> normal;
      for (int iteration = 0; iteration < 2; iteration++) {
        model.fill([&](int, size_t) { return normal(random); });
        model.iterate();
      }
      for (int i = 0; i < model.count() && rank == kRanks - 1; i++) {
        for (size_t e = 0; e < model.spec(i).count(); e++) {
          results[static_cast<size_t>(way)].push_back(model.read(i, e));
        }
      }
    });
  }
  EXPECT_GT(results[0].size(), 1000u);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(ReducerGradients, MayBeReplacedBetweenIterationsAndMoveWithTheirContents) {
  const Ranks world(2, {"shm"});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    {
      const Model model(comm, plain_specs(3, 50), small_buckets());
      ASSERT_EQ(model.created(), uniSuccess) << model.words();
      std::vector<float> other(50, static_cast<float>(2 * rank));
      UNI_OK(uniReducerSetGradient(model.reducer(), 1, other.data()));
      EXPECT_EQ(model.gradient(1), reinterpret_cast<std::byte*>(other.data()));
      model.iterate();
      EXPECT_EQ(other, std::vector<float>(50, 1));
    }
    // With views a gradient given at the start is the first content.
    std::vector<float> given(50, 3);
    const size_t shape[] = {50};
    uniParameter_t parameters[] = {{"a", given.data(), uniFloat32, 1, shape},
                                   {"b", nullptr, uniFloat32, 1, shape}};
    const uniReducerConfig_t config = small_buckets(1);
    uniReducer_t reducer = nullptr;
    UNI_OK(uniReducerCreate(&reducer, comm, parameters, 2, &config));
    for (int iteration = 0; iteration < 2; iteration++) {
      void* at = nullptr;
      UNI_OK(uniReducerGradient(reducer, 0, &at));
      EXPECT_NE(at, given.data());
      EXPECT_EQ(std::memcmp(at, given.data(), sizeof(float) * 50), 0);
      UNI_OK(uniReducerBeginBackward(reducer, 1));
      for (const int i : {0, 1}) UNI_OK(uniReducerMarkReady(reducer, i));
      UNI_OK(uniReducerFinish(reducer));
    }
    UNI_OK(uniReducerDestroy(reducer));
  });
}

TEST(ReducerThreads, MayMarkAtTheSameTime) {
  constexpr int kRanks = 2, kThreads = 4, kParameters = 200;
  const Ranks world(kRanks, {"shm"});
  ASSERT_TRUE(world.ok());
  for (const int views : {0, 1}) {
    world.run([&](int rank, uniComm_t comm) {
      const Model model(comm, plain_specs(kParameters, 37), small_buckets(views));
      ASSERT_EQ(model.created(), uniSuccess) << model.words();
      for (int iteration = 0; iteration < sampled(50, 12, 6); iteration++) {
        fill_iteration(model, kRanks, rank, iteration);
        UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
        std::vector<std::thread> threads;
        for (int t = 0; t < kThreads; t++) {
          threads.emplace_back([&, t] {
            for (int i = t; i < kParameters; i += kThreads) {
              UNI_OK(uniReducerMarkReady(model.reducer(), (i * 77 + rank * 50) % kParameters));
            }
          });
        }
        for (std::thread& thread : threads) thread.join();
        UNI_OK(uniReducerFinish(model.reducer()));
        EXPECT_EQ(wrong_iteration(model, kRanks, iteration), "");
      }
    });
  }
}

}  // namespace
}  // namespace unisono::testing
