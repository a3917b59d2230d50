// Random operands and one call of a kernel, for the tests of comm/reduce.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "comm/reduce/kernels.h"

namespace unisono::testing {

using Bytes = std::vector<uint8_t>;

// Restores the kernel target of the process.
class TargetGuard {
 public:
  TargetGuard() : before_(kernel_target()) {}
  ~TargetGuard() { EXPECT_TRUE(set_kernel_target(before_)); }
  TargetGuard(const TargetGuard&) = delete;
  TargetGuard& operator=(const TargetGuard&) = delete;

 private:
  std::string before_;
};

// Interesting bit patterns of a float format with that many exponent and mantissa bits.
inline uint64_t special_float(uint64_t pick, int exponent_bits, int mantissa_bits) {
  const uint64_t exponent_mask = ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
  const uint64_t mantissa_mask = (uint64_t{1} << mantissa_bits) - 1;
  const uint64_t one = ((uint64_t{1} << (exponent_bits - 1)) - 1) << mantissa_bits;
  const uint64_t magnitudes[] = {
      0,                                            // zero
      1,                                            // least subnormal
      mantissa_mask,                                // greatest subnormal
      mantissa_mask + 1,                            // least normal
      one,                                          // one
      one | 1,                                      // just above
      exponent_mask - 1,                            // greatest number
      exponent_mask,                                // infinity
      exponent_mask | 1,                            // signalling NaN
      exponent_mask | (mantissa_mask + 1) / 2,      // quiet NaN
      exponent_mask | (mantissa_mask + 1) / 2 | 5,  // with a payload
  };
  const uint64_t magnitude = magnitudes[(pick >> 1) % std::size(magnitudes)];
  return magnitude | (pick & 1) << (exponent_bits + mantissa_bits);
}

inline uint64_t random_element(std::mt19937_64& random, DataType type) {
  const uint64_t kind = random() % 8;
  const uint64_t bits = random();
  if (kind >= 6) return bits;
  switch (type) {
    case DataType::kFloat16:
      return kind < 2 ? special_float(bits, 5, 10)
                      : 0x3000 + bits % 0x1800 + (bits >> 60) % 2 * 0x8000;
    case DataType::kBfloat16:
      return kind < 2 ? special_float(bits, 8, 7)
                      : 0x3e00 + bits % 0x0300 + (bits >> 60) % 2 * 0x8000;
    case DataType::kFloat32:
      if (kind < 2) return special_float(bits, 8, 23);
      return std::bit_cast<uint32_t>(static_cast<float>(static_cast<int64_t>(bits)) * 0x1p-62f);
    case DataType::kFloat64:
      if (kind < 2) return special_float(bits, 11, 52);
      return std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-62);
    case DataType::kBool:
      return kind < 4 ? bits % 2 : bits % 3;
    default:
      return kind < 3 ? bits % 5 - 2 : bits;
  }
}

inline void fill_random(std::mt19937_64& random, DataType type, uint8_t* bytes, size_t count) {
  const size_t size = type_bytes(type);
  for (size_t i = 0; i < count; i++) {
    const uint64_t element = random_element(random, type);
    std::memcpy(bytes + i * size, &element, size);  // little-endian
  }
}

// Operands at chosen byte offsets from a 64-byte boundary, each with a guard zone after its end.
class Operands {
 public:
  Operands(std::mt19937_64& random, DataType type, size_t count, const std::vector<size_t>& offsets)
      : bytes_(count * type_bytes(type)) {
    for (const size_t offset : offsets) {
      buffers_.emplace_back(bytes_ + offset + 2 * kGuard, kFence);
      starts_.push_back(aligned(buffers_.back()) + offset);
      fill_random(random, type, starts_.back(), count);
      pointers_.push_back(starts_.back());
    }
  }
  uint8_t* at(size_t k) const { return starts_[k]; }
  const void* const* in() const { return pointers_.data(); }
  int size() const { return static_cast<int>(starts_.size()); }
  Bytes copy(size_t k) const { return Bytes(starts_[k], starts_[k] + bytes_); }
  // True while nothing was written outside the elements of buffer k.
  bool fenced(size_t k) const {
    for (const uint8_t* p = buffers_[k].data(); p < starts_[k]; p++) {
      if (*p != kFence) return false;
    }
    const uint8_t* end = buffers_[k].data() + buffers_[k].size();
    for (const uint8_t* p = starts_[k] + bytes_; p < end; p++) {
      if (*p != kFence) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr uint8_t kFence = 0xa5;
  static uint8_t* aligned(Bytes& buffer) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(buffer.data());
    return buffer.data() + (kGuard - address % kGuard);
  }
  size_t bytes_;
  std::vector<Bytes> buffers_;
  std::vector<uint8_t*> starts_;
  std::vector<const void*> pointers_;
};

inline std::string describe(DataType type, RedOp op, const ReduceArgs& args) {
  return std::string(type_name(type)) + " " + op_name(op) + " count=" + std::to_string(args.count) +
         " operands=" + std::to_string(args.operands) + " stream=" + std::to_string(args.stream) +
         " divide_by=" + std::to_string(args.divide_by) + " target=" + kernel_target();
}

// The scalar kernel's answer.
inline Bytes reference(DataType type, RedOp op, ReduceArgs args) {
  Bytes result(args.count * type_bytes(type));
  const TargetGuard guard;
  EXPECT_TRUE(set_kernel_target("scalar"));
  args.out = result.data();
  args.also = nullptr;
  args.stream = false;
  reduce_kernel(type, op)(args);
  return result;
}

}  // namespace unisono::testing
