// Communication hooks: the built-in ones, a user's, and one that fails.
#include <algorithm>
#include <cmath>

#include "tests/ddp/reducer_harness.h"

namespace unisono::testing {
namespace {

constexpr int kRanks = 3;

struct HookCase {
  const char* name;
  uniBucketHook_t hook;
  uniDataType_t wire;
};

uniReducerConfig_t one_bucket_each() {
  uniReducerConfig_t config = UNI_REDUCER_CONFIG_INITIALIZER;
  config.bucket_bytes = config.first_bucket_bytes = 1;
  return config;
}

class ReducerHooks : public ::testing::TestWithParam<HookCase> {};

// float32 and float64 on the wire as 16 bits: for integers that are small enough nothing is
// rounded.
TEST_P(ReducerHooks, GiveTheAverageAndCountTheBytesOnTheWire) {
  const Ranks world(kRanks, {"shm"});
  ASSERT_TRUE(world.ok());
  for (const int views : {0, 1}) {
    world.run([&](int rank, uniComm_t comm) {
      uniReducerConfig_t config = small_buckets(views);
      config.hook = GetParam().hook;
      const Model model(comm, mixed_specs(), config);
      ASSERT_EQ(model.created(), uniSuccess) << model.words();
      size_t wire_bytes = 0;
      for (int i = 0; i < model.count(); i++) {
        wire_bytes +=
            GetParam().wire == uniFloat32 ? model.spec(i).bytes() : 2 * model.spec(i).count();
      }
      for (int iteration = 0; iteration < 3; iteration++) {
        fill_iteration(model, kRanks, rank, iteration);
        model.iterate();
        EXPECT_EQ(wrong_iteration(model, kRanks, iteration), "");
        EXPECT_EQ(model.stats().wire_bytes, wire_bytes);
      }
    });
  }
}

// As PyTorch's hooks do it: cast, then divided, each rounded.
float cast_then_divided(double value, int ranks, uniDataType_t wire) {
  const uint16_t cast = float_to_half(static_cast<float>(value), wire);
  return half_to_float(float_to_half(half_to_float(cast, wire) / static_cast<float>(ranks), wire),
                       wire);
}

// What the cast loses: nothing else, and nothing less.
TEST_P(ReducerHooks, RoundEachElementToTheWiresType) {
  if (GetParam().wire == uniFloat32) return;
  const Ranks world(2, {"sim"});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    uniReducerConfig_t config = small_buckets();
    config.hook = GetParam().hook;
    const Model model(comm, {{uniFloat32, {999}, "f"}, {uniFloat64, {77}, "d"}}, config);
    ASSERT_EQ(model.created(), uniSuccess) << model.words();
    const auto value = [](int of, int p, size_t e) {
      std::mt19937 random(static_cast<unsigned>(of * 100'000 + p * 10'000 + static_cast<int>(e)));
      return static_cast<double>(std::normal_distribution<float>(0, 8)(random));
    };
    model.fill([&](int p, size_t e) { return value(rank, p, e); });
    model.iterate();
    EXPECT_EQ(model.wrong([&](int p, size_t e) {
      float sum = 0;
      for (int r = 0; r < 2; r++) sum += cast_then_divided(value(r, p, e), 2, GetParam().wire);
      return static_cast<double>(
          half_to_float(float_to_half(sum, GetParam().wire), GetParam().wire));
    }),
              "");
  });
}

// Each element is zero on all ranks but one, so that no sum is rounded. From what float16 makes
// zero of to what it makes infinity of; counts of every remainder of a vector.
TEST_P(ReducerHooks, CastThenDivideAsPyTorchDoes) {
  const uniDataType_t wire = GetParam().wire;
  if (wire == uniFloat32) return;
  for (const int ranks : {1, 2, 3}) {
    const Ranks world(ranks, {"shm"});
    ASSERT_TRUE(world.ok());
    world.run([&](int rank, uniComm_t comm) {
      std::vector<Spec> specs;
      for (size_t i = 0; i < 8; i++) {
        specs.push_back({uniFloat32, {64 * (i + 1) + i}, "f" + std::to_string(i)});
        specs.push_back({uniFloat64, {32 * (i + 1) + i}, "d" + std::to_string(i)});
      }
      uniReducerConfig_t config = one_bucket_each();
      config.keep_buckets = 1;
      config.hook = GetParam().hook;
      const Model model(comm, specs, config);
      ASSERT_EQ(model.created(), uniSuccess) << model.words();
      const auto value = [](int p, size_t e) {
        std::mt19937 random(static_cast<unsigned>(p * 10'000 + static_cast<int>(e)));
        const double exponent = std::uniform_real_distribution<double>(-27, 17)(random);
        return (random() % 2 == 0 ? 1 : -1) * std::exp2(exponent);
      };
      const auto is_mine = [&](size_t e) { return static_cast<int>(e) % ranks == rank; };
      model.fill([&](int p, size_t e) { return is_mine(e) ? value(p, e) : 0; });
      model.iterate();
      EXPECT_EQ(model.wrong([&](int p, size_t e) {
        return static_cast<double>(cast_then_divided(value(p, e), ranks, wire));
      }),
                "")
          << ranks << " ranks";
    });
  }
}

// float16, since the reducer by itself divides it before the sum and a hook gets it undivided; one
// rank, since its gradients do not go through buckets unless there is a hook.
TEST(ReducerHook, SetInMidIterationActsFromTheNextOneOn) {
  for (const int ranks : {1, 2}) {
    const Ranks world(ranks, {"shm"});
    ASSERT_TRUE(world.ok());
    for (const bool towards : {true, false}) {
      world.run([&](int rank, uniComm_t comm) {
        uniReducerConfig_t config = small_buckets();
        config.hook = towards ? nullptr : uniHookAllReduce;
        const Model model(comm, mixed_specs(), config);
        ASSERT_EQ(model.created(), uniSuccess) << model.words();
        for (int iteration = 0; iteration < 3; iteration++) {
          fill_iteration(model, ranks, rank, iteration);
          const std::vector<int> order = model.backward_order();
          ASSERT_EQ(uniReducerBeginBackward(model.reducer(), 1), uniSuccess);
          ASSERT_EQ(uniReducerMarkReady(model.reducer(), order[0]), uniSuccess);
          ASSERT_EQ(
              uniReducerSetHook(model.reducer(), towards ? uniHookAllReduce : nullptr, nullptr),
              uniSuccess);
          for (size_t i = 1; i < order.size(); i++) {
            ASSERT_EQ(uniReducerMarkReady(model.reducer(), order[i]), uniSuccess);
          }
          ASSERT_EQ(uniReducerFinish(model.reducer()), uniSuccess) << uniGetLastError(nullptr);
          EXPECT_EQ(wrong_iteration(model, ranks, iteration), "") << ranks << " ranks";
        }
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReducerHooks,
                         ::testing::Values(HookCase{"AllReduce", uniHookAllReduce, uniFloat32},
                                           HookCase{"Float16", uniHookFloat16Compress, uniFloat16},
                                           HookCase{"Bfloat16", uniHookBfloat16Compress,
                                                    uniBfloat16}),
                         [](const auto& of) { return std::string(of.param.name); });

// Adds without dividing, makes up the wire's bytes, may fail.
struct UserHook {
  std::vector<int> indices;
  size_t fail_at = SIZE_MAX;
  bool with_words = false;
  static uniResult_t run(void* self, uniBucket_t* bucket) {
    auto* user = static_cast<UserHook*>(self);
    if (user->indices.size() == user->fail_at) {
      return user->with_words ? uniSetLastError(uniSystemError, "the disk is full")
                              : uniSystemError;
    }
    user->indices.push_back(bucket->index);
    bucket->wire_bytes = 10;
    return uniAllReduce(bucket->data, bucket->data, bucket->count, bucket->type, uniSum,
                        bucket->comm, bucket->stream);
  }
};

TEST(ReducerUserHook, ReplacesTheAverageFromTheNextIterationOn) {
  const Ranks world(2, {"shm"});
  ASSERT_TRUE(world.ok());
  world.run([&](int, uniComm_t comm) {
    const Model model(comm, plain_specs(4, 30), one_bucket_each());
    ASSERT_EQ(model.created(), uniSuccess) << model.words();
    UserHook user;
    const auto one = [](int, size_t) { return 1; };
    const auto two = [](int, size_t) { return 2; };
    model.fill(one);
    UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
    UNI_OK(uniReducerSetHook(model.reducer(), &UserHook::run, &user));
    model.mark(model.backward_order());
    UNI_OK(uniReducerFinish(model.reducer()));
    EXPECT_EQ(model.wrong(one), "");
    model.iterate();
    EXPECT_EQ(model.wrong(two), "") << "a hook's result is not divided";
    const int buckets = model.stats().buckets;
    EXPECT_EQ(buckets, 4);
    EXPECT_EQ(user.indices, (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(model.stats().wire_bytes, 40u);
    UNI_OK(uniReducerSetHook(model.reducer(), nullptr, nullptr));
    model.iterate();
    EXPECT_EQ(model.wrong(two), "");
  });
}

TEST(ReducerUserHook, ThatFailsEndsTheIterationOnEveryRank) {
  for (const bool with_words : {false, true}) {
    const Ranks world(2, {"shm"});
    ASSERT_TRUE(world.ok());
    world.run([&](int rank, uniComm_t comm) {
      UserHook user;
      user.fail_at = rank == 0 ? 2 : SIZE_MAX;
      user.with_words = with_words;
      uniReducerConfig_t config = one_bucket_each();
      config.keep_buckets = 1;
      config.hook = &UserHook::run;
      config.hook_arg = &user;
      const Model model(comm, plain_specs(4, 30), config);
      ASSERT_EQ(model.created(), uniSuccess) << model.words();
      UNI_OK(uniReducerBeginBackward(model.reducer(), 1));
      for (const int i : model.backward_order()) {
        const uniResult_t result = uniReducerMarkReady(model.reducer(), i);
        // The launch of the third fails; the fourth is not tried.
        if (rank == 0) {
          EXPECT_EQ(result, i >= 2 ? uniSuccess : uniSystemError);
        }
      }
      const uniResult_t result = uniReducerFinish(model.reducer());
      const std::string words = uniGetLastError(nullptr);
      EXPECT_EQ(result, rank == 0 ? uniSystemError : uniAborted) << words;
      if (rank != 0) return;
      EXPECT_NE(words.find("bucket 2 of 4: the hook failed"), std::string::npos) << words;
      if (with_words) {
        EXPECT_NE(words.find("the disk is full"), std::string::npos) << words;
      }
    });
  }
}

TEST(ReducerHook, WithoutABucketIsAnArgumentError) {
  for (const uniBucketHook_t hook :
       {uniHookAllReduce, uniHookFloat16Compress, uniHookBfloat16Compress}) {
    EXPECT_EQ(hook(nullptr, nullptr), uniInvalidArgument);
    EXPECT_STREQ(uniGetLastError(nullptr), "bucket: is null");
  }
}

}  // namespace
}  // namespace unisono::testing
