// Does this processor convert between float32 and float16 as IEEE 754 says? All halves there and
// back, all ties between neighbouring halves with the floats beside them, and random floats, in the
// four rounding modes, by F16C and, where there is, AVX-512, against whole-number arithmetic.
// tools/avx512-check runs it on the emulated processor: an emulator that is wrong here says nothing
// about our float16 kernels. Exit status 0: right; 1: wrong.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

namespace {

constexpr uint32_t kSeed = 20261201;
constexpr size_t kRandomFloats = 500'000, kLanes = 16;
constexpr int kNearest = 0, kDown = 1, kUp = 2;
constexpr const char* kModes[] = {"to nearest", "down", "up", "to zero"};
constexpr uint16_t kHalfInfinity = 0x7c00;

uint16_t narrowed(uint32_t bits, int mode) {
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
  if (exponent == 0xff) {
    const uint32_t quiet = fraction == 0 ? 0 : 0x200 | fraction >> 13;
    return static_cast<uint16_t>(sign | kHalfInfinity | quiet);
  }
  const bool outward = mode == (sign != 0 ? kDown : kUp);
  // The value is significand * 2^(scale - 150); a half's last place is at least 2^-24.
  const uint32_t scale = exponent == 0 ? 1 : exponent;
  const uint32_t significand = exponent == 0 ? fraction : fraction | 0x800000;
  uint32_t shift = scale < 113 ? 126 - scale : 13;
  if (shift > 31) shift = 31;
  const uint32_t rest = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
  uint32_t code = significand >> shift;
  const bool up =
      mode == kNearest ? rest > half || (rest == half && (code & 1) != 0) : outward && rest != 0;
  code += (scale < 113 ? 0 : (scale - 113) << 10) + (up ? 1 : 0);
  if (code >= kHalfInfinity)
    code = mode == kNearest || outward ? kHalfInfinity : kHalfInfinity - 1u;
  return static_cast<uint16_t>(sign | code);
}

uint32_t widened(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1f;
  uint32_t fraction = half & 0x3ff;
  if (exponent == 0x1f) return sign | 0x7f800000 | (fraction == 0 ? 0 : fraction << 13 | 0x400000);
  if (exponent != 0) return sign | (exponent + 112) << 23 | fraction << 13;
  if (fraction == 0) return sign;
  uint32_t scale = 113;
  for (; (fraction & 0x400) == 0; fraction <<= 1) scale--;
  return sign | scale << 23 | (fraction & 0x3ff) << 13;
}

template <int mode>
__attribute__((target("avx,f16c"))) void narrow_f16c(const uint32_t* in, uint16_t* out) {
  for (size_t i = 0; i < kLanes; i += 8) {
    const __m256 floats = _mm256_loadu_ps(reinterpret_cast<const float*>(in + i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(floats, mode));
  }
}

template <int mode>
__attribute__((target("avx512f"))) void narrow_avx512(const uint32_t* in, uint16_t* out) {
  const __m512 floats = _mm512_loadu_ps(in);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_maskz_cvtps_ph(0xffff, floats, mode));
}

__attribute__((target("avx,f16c"))) void widen_f16c(const uint16_t* in, uint32_t* out) {
  for (size_t i = 0; i < kLanes; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    _mm256_storeu_ps(reinterpret_cast<float*>(out + i), _mm256_cvtph_ps(halves));
  }
}

__attribute__((target("avx512f"))) void widen_avx512(const uint16_t* in, uint32_t* out) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
  _mm512_storeu_ps(out, _mm512_maskz_cvtph_ps(0xffff, halves));
}

using Narrow = void (*)(const uint32_t*, uint16_t*);
using Widen = void (*)(const uint16_t*, uint32_t*);

struct Unit {
  const char* name;
  Narrow narrow[4];
  Widen widen;
};

// What is asked, and how often the processor's answer was another.
struct Inputs {
  const char* name;
  std::vector<uint32_t> floats;
};

std::vector<Inputs> all_inputs() {
  Inputs halves{"halves", {}}, ties{"ties", {}}, beside{"beside ties", {}}, random{"random", {}};
  for (uint32_t half = 0; half <= 0xffff; half++) {
    const uint32_t bits = widened(static_cast<uint16_t>(half));
    halves.floats.push_back(bits);
    if ((half & 0x7fff) >= kHalfInfinity) continue;
    // Infinity's code stands for 65536 here: the last tie is 65520.
    const uint32_t next = (half & 0x7fff) == kHalfInfinity - 1u
                              ? bits + 0x2000
                              : widened(static_cast<uint16_t>(half + 1));
    float low = 0, high = 0;
    std::memcpy(&low, &bits, 4);
    std::memcpy(&high, &next, 4);
    const float middle = (low + high) / 2;
    uint32_t tie = 0;
    std::memcpy(&tie, &middle, 4);
    ties.floats.push_back(tie);
    beside.floats.insert(beside.floats.end(), {tie - 1, tie + 1});
  }
  std::mt19937 generator(kSeed);
  for (size_t i = 0; i < kRandomFloats; i++) {
    const uint32_t bits = generator();
    // Every other one where halves are: 2^-27 to 2^18.
    const uint32_t near_halves = (bits & 0x807fffff) | (100 + (bits >> 23 & 0xff) % 46) << 23;
    random.floats.push_back(i % 2 == 0 ? bits : near_halves);
  }
  return {halves, ties, beside, random};
}

size_t report(const char* unit, const char* what, const char* how, size_t wrong, size_t of,
              const char* first) {
  std::printf("float16 probe: %s, %s %s: %zu wrong of %zu%s\n", unit, what, how, wrong, of, first);
  return wrong;
}

size_t narrow_all(const Unit& unit, const Inputs& inputs, int mode) {
  size_t wrong = 0;
  char first[80] = "";
  for (size_t at = 0; at < inputs.floats.size(); at += kLanes) {
    const size_t lanes = std::min(kLanes, inputs.floats.size() - at);
    uint32_t in[kLanes] = {};
    uint16_t out[kLanes];
    std::memcpy(in, &inputs.floats[at], lanes * 4);
    unit.narrow[mode](in, out);
    for (size_t i = 0; i < lanes; i++) {
      const uint16_t right = narrowed(in[i], mode);
      if (out[i] == right) continue;
      if (wrong++ == 0) {
        std::snprintf(first, sizeof first, ", first %08x: %04x, not %04x", in[i], out[i], right);
      }
    }
  }
  return report(unit.name, inputs.name, kModes[mode], wrong, inputs.floats.size(), first);
}

size_t widen_all(const Unit& unit) {
  size_t wrong = 0;
  for (uint32_t half = 0; half <= 0xffff; half += kLanes) {
    uint16_t in[kLanes];
    uint32_t out[kLanes];
    for (uint32_t i = 0; i < kLanes; i++) in[i] = static_cast<uint16_t>(half + i);
    unit.widen(in, out);
    for (size_t i = 0; i < kLanes; i++) wrong += out[i] != widened(in[i]);
  }
  return report(unit.name, "halves", "to float32", wrong, 0x10000, "");
}

}  // namespace

int main() {
  std::vector<Unit> units;
  if (__builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c")) {
    units.push_back(
        {"F16C", {narrow_f16c<0>, narrow_f16c<1>, narrow_f16c<2>, narrow_f16c<3>}, widen_f16c});
  }
  if (__builtin_cpu_supports("avx512f")) {
    units.push_back({"AVX-512",
                     {narrow_avx512<0>, narrow_avx512<1>, narrow_avx512<2>, narrow_avx512<3>},
                     widen_avx512});
  }
  const std::vector<Inputs> inputs = all_inputs();
  size_t wrong = 0;
  for (const Unit& unit : units) {
    wrong += widen_all(unit);
    for (const Inputs& some : inputs) {
      for (int mode = 0; mode < 4; mode++) wrong += narrow_all(unit, some, mode);
    }
  }
  const bool right = wrong == 0 && !units.empty();
  std::printf("float16 probe: %s\n", right ? "right" : "wrong");
  return right ? 0 : 1;
}
