// float16 and bfloat16 to and from float32, without branches, so that loops of them vectorise. To
// 16 bits: nearest, ties to even; a NaN becomes the quiet one. (comm/reduce has its own:
// what is here must do with the public API, and tests hold the two against each other.)
#pragma once

#include <bit>
#include <cstdint>

namespace unisono::ddp {

// All ones where a < b, for values of which neither is near the ends of int32_t. Arithmetic: a
// conditional would be moved around the float operations, and the loop stay scalar.
inline int32_t mask_less(int32_t a, int32_t b) {
  return (a - b) >> 31;
}
inline int32_t select(int32_t mask, int32_t where_set, int32_t where_clear) {
  return (where_set & mask) | (where_clear & ~mask);
}

inline float float16_to_float(uint16_t half) {
  constexpr int32_t kRebias = (127 - 15) << 23;
  const int32_t magnitude = half & 0x7fff;
  const int32_t sign = static_cast<int32_t>(half) - magnitude;
  const int32_t normal = (magnitude << 13) + kRebias;
  // Units of 2^-24: the conversion of the integer does the normalising.
  const auto subnormal = std::bit_cast<int32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  const int32_t beyond = kRebias & mask_less(0x7bff, magnitude);  // infinity and NaN
  const int32_t bits = select(mask_less(magnitude, 0x400), subnormal, normal + beyond);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) | (static_cast<uint32_t>(sign) << 16));
}

inline uint16_t float_to_float16(float value) {
  constexpr int32_t kLeastNormal = (127 - 14) << 23;
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
  const int32_t odd = (magnitude >> 13) & 1;
  const int32_t normal = (magnitude - ((127 - 15) << 23) + 0xfff + odd) >> 13;
  // Next to 0.5 a float's last place is 2^-24, the unit of subnormals: the addition rounds.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  const int32_t subnormal = std::bit_cast<int32_t>(shifted) - 0x3f000000;
  int32_t result = select(mask_less(magnitude, kLeastNormal), subnormal, normal);
  result = select(mask_less(magnitude, 0x477ff000), result, 0x7c00);  // from 65520 on
  result = select(mask_less(0x7f800000, magnitude), 0x7e00, result);
  return static_cast<uint16_t>(static_cast<uint32_t>(result) | ((bits >> 16) & 0x8000u));
}

inline float bfloat16_to_float(uint16_t half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

inline uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto rounded = static_cast<int32_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  const auto magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
  return static_cast<uint16_t>(select(mask_less(0x7f800000, magnitude), 0x7fc0, rounded));
}

}  // namespace unisono::ddp
