// What the kernels mean, against references that share no code with them: f64 sums rounded once,
// tables for NaN and signed zeros, integer division.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "comm/reduce/half.h"
#include "tests/comm/reduce/reduce_testing.h"

namespace unisono::testing {
namespace {

constexpr uint64_t kSeed = 77001;

template <class T>
std::vector<T> reduce_all(DataType type, RedOp op, const std::vector<std::vector<T>>& inputs,
                          int64_t divide_by = 0) {
  std::vector<const void*> in;
  for (const std::vector<T>& input : inputs) in.push_back(input.data());
  std::vector<T> out(inputs[0].size());
  ReduceArgs args;
  args.out = out.data();
  args.in = in.data();
  args.operands = static_cast<int>(in.size());
  args.count = out.size();
  args.divide_by = divide_by;
  reduce_kernel(type, op)(args);
  return out;
}

template <class Body>
void each_target(Body body) {
  const TargetGuard guard;
  for (const char* target : kernel_targets()) {
    ASSERT_TRUE(set_kernel_target(target));
    SCOPED_TRACE(target);
    body();
  }
}

// The value of a 16-bit float from its definition, in f64.
double value_of(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign *
         std::ldexp(std::ldexp(1.0, mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

// The 16-bit float nearest to a finite value, ties to even, by rounding to its grid in f64.
uint16_t nearest(double value, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  const int exponent = std::max(magnitude == 0 ? 1 - bias : std::ilogb(magnitude), 1 - bias);
  const double units = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  // units in [0, 2^(mantissa_bits + 1)]: a carry runs into the exponent by itself.
  const uint32_t bits =
      static_cast<uint32_t>(units) + (static_cast<uint32_t>(exponent + bias - 1) << mantissa_bits);
  const uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  return static_cast<uint16_t>(sign | std::min(bits, infinity));
}

void check_every_half_value(DataType type, int exponent_bits, int mantissa_bits) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); i++) all[i] = static_cast<uint16_t>(i);
  const std::vector<uint16_t> zero(all.size(), 0x8000);  // x + -0 == x, also for both zeros
  const uint16_t infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  const uint16_t nan = type == DataType::kFloat16 ? kFloat16Nan : kBfloat16Nan;
  each_target([&] {
    const std::vector<uint16_t> sum = reduce_all<uint16_t>(type, RedOp::kSum, {all, zero});
    for (size_t i = 0; i < all.size(); i++) {
      const bool is_nan = (all[i] & 0x7fff) > infinity;
      ASSERT_EQ(sum[i], is_nan ? nan : all[i]) << i;
    }
  });
}
TEST(HalfKernels, EveryFloat16SurvivesTheRoundTripAndNanBecomesOneNan) {
  check_every_half_value(DataType::kFloat16, 5, 10);
}
TEST(HalfKernels, EveryBfloat16SurvivesTheRoundTripAndNanBecomesOneNan) {
  check_every_half_value(DataType::kBfloat16, 8, 7);
}

// Operands are such that f32 (and f64) sums are exact, so one rounding is the only rounding.
void check_one_rounding(DataType type, int exponent_bits, int mantissa_bits, int64_t divide_by) {
  std::mt19937_64 random(kSeed);
  ::testing::Test::RecordProperty("seed", std::to_string(kSeed));
  const size_t count = 20011;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  std::vector<std::vector<uint16_t>> inputs(7, std::vector<uint16_t>(count));
  for (size_t i = 0; i < count; i++) {
    // Exponents within 8 of each other, now and then at the subnormal or the overflowing end.
    const uint64_t kind = random() % 8;
    // float16 may overflow when rounded; bfloat16 would overflow before, in f32.
    const int top = type == DataType::kFloat16 ? 2 * bias : 2 * bias - 3;
    const int base = kind == 0   ? 0
                     : kind == 1 ? top - 8
                                 : 1 + static_cast<int>(random() % (top - 9));
    for (auto& input : inputs) {
      const int exponent = base + static_cast<int>(random() % 8);
      const uint64_t mantissa = random() & ((1u << mantissa_bits) - 1);
      const uint64_t sign = (random() & 1) << 15;
      input[i] =
          static_cast<uint16_t>(sign | static_cast<uint64_t>(exponent) << mantissa_bits | mantissa);
    }
  }
  const RedOp op = divide_by == 0 ? RedOp::kSum : RedOp::kAvg;
  each_target([&] {
    const std::vector<uint16_t> got = reduce_all<uint16_t>(type, op, inputs, divide_by);
    for (size_t i = 0; i < count; i++) {
      double sum = 0;
      for (const auto& input : inputs) sum += value_of(input[i], exponent_bits, mantissa_bits);
      if (type == DataType::kBfloat16 && std::fabs(sum) > std::numeric_limits<float>::max())
        continue;
      if (divide_by != 0) sum /= static_cast<double>(divide_by);  // a power of two: exact
      ASSERT_EQ(got[i], nearest(sum, exponent_bits, mantissa_bits)) << i << " sum " << sum;
    }
  });
}
TEST(HalfKernels, Float16SumsOfSevenAreRoundedOnce) {
  check_one_rounding(DataType::kFloat16, 5, 10, 0);
}
TEST(HalfKernels, Bfloat16SumsOfSevenAreRoundedOnce) {
  check_one_rounding(DataType::kBfloat16, 8, 7, 0);
}
TEST(HalfKernels, Float16AveragesAreRoundedOnce) {
  check_one_rounding(DataType::kFloat16, 5, 10, 8);
}
TEST(HalfKernels, Bfloat16AveragesAreRoundedOnce) {
  check_one_rounding(DataType::kBfloat16, 8, 7, 8);
}

// What minimum and maximum must give: NaN over everything, then the order with -0 < +0.
template <class T>
T expected_extreme(const std::vector<double>& values, bool max) {
  double best = values[0];
  for (const double value : values) {
    if (std::isnan(value)) return std::numeric_limits<T>::quiet_NaN();
    const bool less = value < best || (value == best && std::signbit(value) && !std::signbit(best));
    const bool greater =
        value > best || (value == best && !std::signbit(value) && std::signbit(best));
    if (max ? greater : less) best = value;
  }
  return static_cast<T>(best);
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kTable[] = {kNan, -kNan, -kInfinity, kInfinity, -0.0, 0.0, 1.0, -1.0};

// All triples of the table, in every order, as elements of three vectors.
std::vector<std::vector<double>> triples() {
  std::vector<std::vector<double>> list;
  for (const double a : kTable) {
    for (const double b : kTable) {
      for (const double c : kTable) list.push_back({a, b, c});
    }
  }
  return list;
}

template <class T, class Make>
void check_extremes(DataType type, Make make) {
  const auto cases = triples();
  std::vector<std::vector<T>> inputs(3);
  for (const auto& triple : cases) {
    for (size_t k = 0; k < 3; k++) inputs[k].push_back(make(triple[k]));
  }
  each_target([&] {
    for (const RedOp op : {RedOp::kMax, RedOp::kMin}) {
      const std::vector<T> three = reduce_all<T>(type, op, inputs);
      const std::vector<T> two = reduce_all<T>(type, op, {inputs[0], inputs[1]});
      for (size_t i = 0; i < cases.size(); i++) {
        const auto& c = cases[i];
        const bool max = op == RedOp::kMax;
        const T want3 = make(expected_extreme<double>(c, max));
        const T want2 = make(expected_extreme<double>({c[0], c[1]}, max));
        ASSERT_EQ(std::memcmp(&three[i], &want3, sizeof(T)), 0) << op_name(op) << " " << i;
        ASSERT_EQ(std::memcmp(&two[i], &want2, sizeof(T)), 0) << op_name(op) << " " << i;
      }
    }
  });
}
TEST(Extremes, NanAndSignedZerosFollowTheTableInEveryOrderForFloat64) {
  check_extremes<double>(DataType::kFloat64, [](double v) { return v; });
}
TEST(Extremes, NanAndSignedZerosFollowTheTableInEveryOrderForFloat32) {
  check_extremes<float>(DataType::kFloat32, [](double v) { return static_cast<float>(v); });
}
TEST(Extremes, NanAndSignedZerosFollowTheTableInEveryOrderForFloat16) {
  check_extremes<uint16_t>(DataType::kFloat16,
                           [](double v) { return float_to_float16(static_cast<float>(v)); });
}
TEST(Extremes, NanAndSignedZerosFollowTheTableInEveryOrderForBfloat16) {
  check_extremes<uint16_t>(DataType::kBfloat16,
                           [](double v) { return float_to_bfloat16(static_cast<float>(v)); });
}

TEST(FloatKernels, NanOfAnySumIsTheCanonicalNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float payload = std::bit_cast<float>(0xffc12345u);
  each_target([&] {
    const std::vector<float> got = reduce_all<float>(
        DataType::kFloat32, RedOp::kSum, {{infinity, payload, 1}, {-infinity, 1, payload}});
    for (const float value : got) EXPECT_EQ(std::bit_cast<uint32_t>(value), kFloat32Nan);
  });
}

TEST(FloatKernels, AverageIsTheSumTimesTheReciprocal) {
  each_target([&] {
    const std::vector<float> a(9, 1.0f), b(9, 1.0f), c(9, 3.0f);
    for (const float value : reduce_all<float>(DataType::kFloat32, RedOp::kAvg, {a, b, c}, 3)) {
      EXPECT_EQ(value, 5.0f * (1.0f / 3.0f));
    }
    for (const float value : reduce_all<float>(DataType::kFloat32, RedOp::kAvg, {a, b, c}, 0)) {
      EXPECT_EQ(value, 5.0f);
    }
    for (const float value : reduce_all<float>(DataType::kFloat32, RedOp::kAvg, {c}, 2))
      EXPECT_EQ(value, 1.5f);
  });
}

TEST(FloatKernels, OnlyFlaggedOperandsArePremultiplied) {
  const std::vector<double> a(11, 3), b(11, 5), c(11, 7);
  const void* in[] = {a.data(), b.data(), c.data()};
  const uint8_t prescale[] = {1, 0, 1};
  std::vector<double> out(11);
  ReduceArgs args;
  args.out = out.data();
  args.in = in;
  args.prescale = prescale;
  args.operands = 3;
  args.count = out.size();
  args.scalar = 0.5;
  each_target([&] {
    args.operands = 3;
    reduce_kernel(DataType::kFloat64, RedOp::kPreMulSum)(args);
    for (const double value : out) EXPECT_EQ(value, 10.0);
    args.operands = 1;
    reduce_kernel(DataType::kFloat64, RedOp::kPreMulSum)(args);
    for (const double value : out) EXPECT_EQ(value, 1.5);
  });
}

TEST(IntKernels, AverageDividesTheWrappedSumTowardsZero) {
  each_target([&] {
    const std::vector<int32_t> a(19, -7), b(19, 0);
    for (const int32_t v : reduce_all<int32_t>(DataType::kInt32, RedOp::kAvg, {a, b}, 2))
      EXPECT_EQ(v, -3);
    const std::vector<uint8_t> big(67, 200);  // 400 wraps to 144
    for (const uint8_t v : reduce_all<uint8_t>(DataType::kUint8, RedOp::kAvg, {big, big}, 2))
      EXPECT_EQ(v, 72);
    const std::vector<int8_t> low(67, -100);  // -200 wraps to 56
    for (const int8_t v : reduce_all<int8_t>(DataType::kInt8, RedOp::kAvg, {low, low}, 300))
      EXPECT_EQ(v, 0);
    const std::vector<uint64_t> top(5, UINT64_MAX), one(5, 0);
    for (const uint64_t v : reduce_all<uint64_t>(DataType::kUint64, RedOp::kAvg, {top, one}, 2)) {
      EXPECT_EQ(v, UINT64_MAX / 2);
    }
  });
}

TEST(BoolKernels, AnyByteButZeroCountsAsOne) {
  const std::vector<uint8_t> a = {0, 0, 7, 255, 0, 2}, b = {0, 4, 0, 128, 0, 4};
  using List = std::vector<uint8_t>;
  each_target([&] {
    for (const RedOp op : {RedOp::kSum, RedOp::kMax, RedOp::kBor}) {
      EXPECT_EQ(reduce_all<uint8_t>(DataType::kBool, op, {a, b}), (List{0, 1, 1, 1, 0, 1}));
    }
    for (const RedOp op : {RedOp::kProd, RedOp::kMin, RedOp::kBand}) {
      EXPECT_EQ(reduce_all<uint8_t>(DataType::kBool, op, {a, b}), (List{0, 0, 0, 1, 0, 1}));
    }
    EXPECT_EQ(reduce_all<uint8_t>(DataType::kBool, RedOp::kBxor, {a, b}), (List{0, 1, 1, 0, 0, 0}));
    EXPECT_EQ(reduce_all<uint8_t>(DataType::kBool, RedOp::kSum, {a}), (List{0, 0, 1, 1, 0, 1}));
  });
}

}  // namespace
}  // namespace unisono::testing
