// Every target that this machine runs gives the scalar kernels' bits, for every type and operation.
#include <gtest/gtest.h>

#include <cstdio>
#include <tuple>

#include "tests/comm/reduce/reduce_testing.h"

namespace unisono::testing {
namespace {

constexpr uint64_t kSeed = 20240611;

class KernelsTest : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  void SetUp() override {
    type_ = static_cast<DataType>(std::get<1>(GetParam()));
    ASSERT_TRUE(set_kernel_target(std::get<0>(GetParam())));
    RecordProperty("seed", std::to_string(kSeed));
    random_.seed(kSeed + static_cast<uint64_t>(type_));
  }

  // One call into fresh outputs at those offsets; out or also may be left out.
  void check_call(RedOp op, ReduceArgs args, size_t out_offset, size_t also_offset, bool with_out,
                  bool with_also) {
    SCOPED_TRACE(describe(type_, op, args) + " out+" + std::to_string(out_offset));
    const Bytes expected = reference(type_, op, args);
    Operands outputs(random_, type_, args.count, {out_offset, also_offset});
    args.out = with_out ? outputs.at(0) : nullptr;
    args.also = with_also ? outputs.at(1) : nullptr;
    reduce_kernel(type_, op)(args);
    if (with_out) {
      ASSERT_EQ(outputs.copy(0), expected);
    }
    if (with_also) {
      ASSERT_EQ(outputs.copy(1), expected);
    }
    ASSERT_TRUE(outputs.fenced(0) && outputs.fenced(1));
  }

  // In place: out is operand k, also is operand j (or null when j == k).
  void check_in_place(RedOp op, const std::vector<size_t>& offsets, size_t count, size_t k,
                      size_t j, bool stream) {
    Operands operands(random_, type_, count, offsets);
    ReduceArgs args = make_args(op, operands, count);
    args.stream = stream;
    args.stream_also = stream != (count % 2 == 0);
    SCOPED_TRACE(describe(type_, op, args) + " in place of " + std::to_string(k));
    const Bytes expected = reference(type_, op, args);
    args.out = operands.at(k);
    args.also = j == k ? nullptr : operands.at(j);
    reduce_kernel(type_, op)(args);
    ASSERT_EQ(operands.copy(k), expected);
    if (j != k) {
      ASSERT_EQ(operands.copy(j), expected);
    }
    for (size_t i = 0; i < offsets.size(); i++) ASSERT_TRUE(operands.fenced(i));
  }

  ReduceArgs make_args(RedOp op, const Operands& operands, size_t count) {
    ReduceArgs args;
    args.in = operands.in();
    args.operands = operands.size();
    args.count = count;
    if (op == RedOp::kPreMulSum) {
      for (uint8_t& flag : prescale_) flag = static_cast<uint8_t>(random_() % 2);
      args.prescale = prescale_;
      args.scalar = 0.3125;
    }
    if (op == RedOp::kAvg && random_() % 3 != 0)
      args.divide_by = 1 + static_cast<int64_t>(random_() % 9);
    return args;
  }

  template <class Body>
  void each_op(Body body) {
    for (int op = 0; op < kRedOps && !HasFatalFailure(); op++) {
      if (op_allowed(static_cast<RedOp>(op), type_)) body(static_cast<RedOp>(op));
    }
  }

  // An offset of whole elements, now and then of odd bytes.
  size_t offset() {
    const size_t elements = random_() % 64 / type_bytes(type_) * type_bytes(type_);
    return random_() % 4 == 0 ? random_() % 64 : elements;
  }
  std::vector<size_t> offsets(int operands) {
    std::vector<size_t> list;
    for (int k = 0; k < operands; k++) list.push_back(offset());
    return list;
  }

  DataType type_ = DataType::kInt8;
  std::mt19937_64 random_;
  uint8_t prescale_[16] = {};
};

TEST_P(KernelsTest, SmallCountsOfEveryOperandNumberMatchTheScalarKernels) {
  each_op([&](RedOp op) {
    for (size_t count = 0; count <= 67; count++) {
      const int operands = 1 + static_cast<int>((count + random_() % 3) % 9);
      for (const int n : {2, operands}) {
        const Operands in(random_, type_, count, offsets(n));
        const bool with_out = random_() % 4 != 0;
        ReduceArgs args = make_args(op, in, count);
        args.stream = random_() % 4 == 0;
        args.stream_also = random_() % 4 == 0;
        check_call(op, args, offset(), offset(), with_out, !with_out || random_() % 2 == 0);
        if (HasFatalFailure()) return;
      }
    }
  });
}

TEST_P(KernelsTest, LargeOddCountsMatchTheScalarKernels) {
  each_op([&](RedOp op) {
    for (const size_t count : {size_t{257}, size_t{1031}, size_t{4099}}) {
      for (int operands = 1; operands <= 9; operands++) {
        if (count > 2000 && operands > 3 && operands < 9) continue;
        const Operands in(random_, type_, count, offsets(operands));
        ReduceArgs args = make_args(op, in, count);
        args.stream = operands % 2 == 0;
        args.stream_also = operands % 4 < 2;
        check_call(op, args, offset(), offset(), true, operands % 3 == 0);
        if (HasFatalFailure()) return;
      }
    }
  });
}

TEST_P(KernelsTest, StreamedOutputsMatchAtEveryAlignment) {
  const size_t size = type_bytes(type_);
  each_op([&](RedOp op) {
    for (size_t at = 0; at < 64; at += size == 1 ? 3 : size) {
      const Operands in(random_, type_, 700, {0, 8});
      ReduceArgs args = make_args(op, in, 700);
      args.stream = true;
      check_call(op, args, at, 0, true, at % 3 == 0);
      if (HasFatalFailure()) return;
      args.stream_also = true;
      for (const size_t other : {at, size_t{0}, offset()}) {
        args.stream = other != 0;
        check_call(op, args, other, at, true, true);
        check_call(op, args, 0, at, false, true);
        if (HasFatalFailure()) return;
      }
    }
  });
}

TEST_P(KernelsTest, OutputsMayBeAnyOfTheOperands) {
  each_op([&](RedOp op) {
    for (const size_t count : {size_t{1}, size_t{3}, size_t{37}, size_t{67}, size_t{1027}}) {
      for (const size_t operands : {size_t{1}, size_t{2}, size_t{3}, size_t{5}}) {
        const size_t k = random_() % operands;
        const size_t j = random_() % operands;
        check_in_place(op, offsets(static_cast<int>(operands)), count, k, j, random_() % 2 == 0);
        if (HasFatalFailure()) return;
      }
    }
  });
}

std::string test_name(const ::testing::TestParamInfo<std::tuple<const char*, int>>& info) {
  return std::string(std::get<0>(info.param)) + "_" +
         type_name(static_cast<DataType>(std::get<1>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(Targets, KernelsTest,
                         ::testing::Combine(::testing::ValuesIn(kernel_targets()),
                                            ::testing::Range(0, kDataTypes)),
                         test_name);

TEST(KernelTargets, ScalarIsAlwaysThereAndUnknownNamesAreRefused) {
  const TargetGuard guard;
  const std::vector<const char*> targets = kernel_targets();
  ASSERT_FALSE(targets.empty());
  EXPECT_STREQ(targets.front(), "scalar");
  EXPECT_FALSE(set_kernel_target("mmx"));
  for (const char* target : targets) {
    std::printf("runs here: %s\n", target);
    ASSERT_TRUE(set_kernel_target(target));
    EXPECT_STREQ(kernel_target(), target);
  }
}

TEST(CopyBytes, CopiesExactlyAtEveryOffsetAndSize) {
  const TargetGuard guard;
  std::mt19937_64 random(kSeed);
  for (const char* target : kernel_targets()) {
    ASSERT_TRUE(set_kernel_target(target));
    for (int round = 0; round < 600; round++) {
      const size_t bytes = round < 300 ? static_cast<size_t>(round) : random() % 5000;
      const Operands from(random, DataType::kUint8, bytes, {random() % 64});
      const Operands to(random, DataType::kUint8, bytes, {random() % 64});
      copy_bytes(to.at(0), from.at(0), bytes, round % 2 == 0);
      ASSERT_EQ(to.copy(0), from.copy(0)) << target << " " << bytes;
      ASSERT_TRUE(to.fenced(0));
      copy_bytes(to.at(0), to.at(0), bytes, true);  // onto itself: nothing to do
      ASSERT_EQ(to.copy(0), from.copy(0));
    }
  }
}

}  // namespace
}  // namespace unisono::testing
