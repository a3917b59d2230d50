#include "ddp/reducer/half_x86.h"

#ifdef __x86_64__
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define UNISONO_X86 __attribute__((target("avx2,f16c")))

namespace unisono::ddp {
namespace {

constexpr size_t kLanes = 8;

// 16 bits in each of 8 lanes: nearest, ties to even; a NaN becomes the quiet one.
UNISONO_X86 inline __m256i float_to_bfloat16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, up), 16);
  const __m256 is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0), _mm256_castps_si256(is_nan));
}

UNISONO_X86 inline __m256 bfloat16_to_float(__m256i lanes) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(lanes, 16));
}

template <bool kFloat16>
UNISONO_X86 inline void narrow_block(const float* from, uint16_t* to, __m256 divisor) {
  const __m256 value = _mm256_loadu_ps(from);
  __m128i halves;
  if constexpr (kFloat16) {
    const __m128i cast = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
    const __m256 divided = _mm256_div_ps(_mm256_cvtph_ps(cast), divisor);
    halves = _mm256_cvtps_ph(divided, _MM_FROUND_TO_NEAREST_INT);
  } else {
    const __m256 cast = bfloat16_to_float(float_to_bfloat16(value));
    const __m256i lanes = float_to_bfloat16(_mm256_div_ps(cast, divisor));
    halves = _mm_packus_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
}

template <bool kFloat16>
UNISONO_X86 inline void widen_block(const uint16_t* from, float* to) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  _mm256_storeu_ps(
      to, kFloat16 ? _mm256_cvtph_ps(halves) : bfloat16_to_float(_mm256_cvtepu16_epi32(halves)));
}

// Front to back: results are shorter than what they are made of.
template <bool kFloat16>
UNISONO_X86 void narrow_all(void* data, size_t count, float divisor) {
  const auto* from = static_cast<const float*>(data);
  auto* to = static_cast<uint16_t*>(data);
  const __m256 by = _mm256_set1_ps(divisor);
  const size_t rest = count % kLanes, whole = count - rest;
  for (size_t at = 0; at < whole; at += kLanes) narrow_block<kFloat16>(from + at, to + at, by);
  float in[kLanes] = {};
  uint16_t out[kLanes];
  std::memcpy(in, from + whole, rest * sizeof *in);
  narrow_block<kFloat16>(in, out, by);
  std::memcpy(to + whole, out, rest * sizeof *out);
}

// Back to front.
template <bool kFloat16>
UNISONO_X86 void widen_all(void* data, size_t count) {
  const auto* from = static_cast<const uint16_t*>(data);
  auto* to = static_cast<float*>(data);
  const size_t rest = count % kLanes, whole = count - rest;
  uint16_t in[kLanes] = {};
  float out[kLanes];
  std::memcpy(in, from + whole, rest * sizeof *in);
  widen_block<kFloat16>(in, out);
  std::memcpy(to + whole, out, rest * sizeof *out);
  for (size_t at = whole; at > 0; at -= kLanes) {
    widen_block<kFloat16>(from + at - kLanes, to + at - kLanes);
  }
}

}  // namespace

bool has_x86_halves() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return has;
}

void narrow_by_x86(void* data, size_t count, uniDataType_t narrow_type, float divisor) {
  return narrow_type == uniFloat16 ? narrow_all<true>(data, count, divisor)
                                   : narrow_all<false>(data, count, divisor);
}

void widen_by_x86(void* data, size_t count, uniDataType_t narrow_type) {
  return narrow_type == uniFloat16 ? widen_all<true>(data, count) : widen_all<false>(data, count);
}

}  // namespace unisono::ddp

#else

namespace unisono::ddp {

bool has_x86_halves() {
  return false;
}
void narrow_by_x86(void*, size_t, uniDataType_t, float) {}
void widen_by_x86(void*, size_t, uniDataType_t) {}

}  // namespace unisono::ddp

#endif
