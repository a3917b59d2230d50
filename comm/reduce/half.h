// Conversions of the two 16-bit float formats, in plain integer arithmetic: the reference that the
// vector kernels match.
#pragma once

#include <bit>
#include <cstdint>

namespace unisono {

inline constexpr uint16_t kFloat16Nan = 0x7e00;
inline constexpr uint16_t kBfloat16Nan = 0x7fc0;
inline constexpr uint32_t kFloat32Nan = 0x7fc00000;
inline constexpr uint64_t kFloat64Nan = 0x7ff8000000000000;

// Exact. A NaN stays a NaN, its payload is kept.
inline float float16_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa units of 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t wide_exponent = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (mantissa << 13));
}

// Shifts out `bits` low bits (1..31), rounding to nearest, ties to even.
inline uint32_t shift_right_rounded(uint32_t value, int bits) {
  const uint32_t odd = (value >> bits) & 1u;
  return (value + (1u << (bits - 1)) - 1 + odd) >> bits;
}

// To nearest, ties to even; every NaN becomes kFloat16Nan.
inline uint16_t float_to_float16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return kFloat16Nan;
  if (magnitude >= 0x477ff000u)
    return static_cast<uint16_t>(sign | 0x7c00u);  // from 65520 on: infinity
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent >= -14) {
    return static_cast<uint16_t>(sign | shift_right_rounded(magnitude - (112u << 23), 13));
  }
  if (exponent < -25) return static_cast<uint16_t>(sign);  // under half of the least subnormal
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  return static_cast<uint16_t>(sign | shift_right_rounded(mantissa, -1 - exponent));
}

// Exact.
inline float bfloat16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// To nearest, ties to even; every NaN becomes kBfloat16Nan.
inline uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return kBfloat16Nan;
  return static_cast<uint16_t>(shift_right_rounded(bits, 16));
}

}  // namespace unisono
