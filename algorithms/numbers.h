// Powers of two, and counting round the ring of ranks.
#pragma once

#include <cstdint>

namespace unisono {

// 2^floor_log2(n) <= n; n >= 1.
constexpr int32_t floor_log2(int32_t n) {
  int32_t log = 0;
  while (n >> (log + 1) > 0) ++log;
  return log;
}
// 2^ceil_log2(n) >= n; n >= 1.
constexpr int32_t ceil_log2(int32_t n) {
  return n == 1 ? 0 : floor_log2(n - 1) + 1;
}
// The largest power of two <= n.
constexpr int32_t power_of_two_below(int32_t n) {
  return 1 << floor_log2(n);
}
// value modulo `modulus`, of any sign, in 0 ... modulus - 1.
constexpr int32_t wrap(int32_t value, int32_t modulus) {
  return (value % modulus + modulus) % modulus;
}

}  // namespace unisono
