// Inside comm/reduce: who fills which rows of the dispatch table.
#pragma once

#include <array>
#include <cstdint>

#include "comm/reduce/kernels.h"

namespace unisono::reduce {

struct Table {
  std::array<std::array<ReduceFn, kRedOps>, kDataTypes> rows{};
};

inline ReduceFn& cell(Table& table, DataType type, RedOp op) {
  return table.rows[static_cast<size_t>(type)][static_cast<size_t>(op)];
}

// Plain C++, independent of Highway: what every other target is compared with.
void fill_scalar_kernels(Table& table);
// `target` is one of Highway's HWY_* bits; a target that was not compiled leaves the table as it
// is.
void fill_float_kernels(int64_t target, Table& table);  // float32, float64
void fill_half_kernels(int64_t target, Table& table);   // float16, bfloat16
void fill_int_kernels(int64_t target, Table& table);    // integers, bool
// The Highway targets compiled into this build, as a bit set.
int64_t compiled_targets();

// One operand and nothing to apply: out and also are copies.
void copy_operand(const ReduceArgs& args, size_t bytes);

}  // namespace unisono::reduce

// Which of Highway's targets we build: each costs compile time and code; these are the steps that
// pay. Vector-length agnostic targets (SVE) are left out, since the loops here use fixed-size tags.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#define UNISONO_FILL_ONE(target_bit, target, table, space) \
  if ((target) == (target_bit)) space::fill(table)

#if (HWY_ARCH_X86_64 + 0) || defined(__x86_64__)
#define UNISONO_FILL_TARGET(target, table)           \
  UNISONO_FILL_ONE(HWY_SSE4, target, table, N_SSE4); \
  UNISONO_FILL_ONE(HWY_AVX2, target, table, N_AVX2); \
  UNISONO_FILL_ONE(HWY_AVX3, target, table, N_AVX3)
#elif defined(__aarch64__)
#define UNISONO_FILL_TARGET(target, table) UNISONO_FILL_ONE(HWY_NEON, target, table, N_NEON)
#else
#define UNISONO_FILL_TARGET(target, table) static_cast<void>(target), static_cast<void>(table)
#endif
