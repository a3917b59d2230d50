// A plain reference: what each collective must give, computed element by element with no library
// code.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "unisono/unisono.h"

namespace unisono::testing {

inline size_t size_of(uniDataType_t type) {
  static const size_t sizes[uniNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1};
  return sizes[type];
}
inline bool is_float(uniDataType_t type) {
  return type == uniFloat16 || type == uniFloat32 || type == uniFloat64 || type == uniBfloat16;
}
inline bool defined(uniRedOp_t op, uniDataType_t type) {
  if (op == uniAvg) return type != uniBool;
  return !is_float(type) || (op != uniBand && op != uniBor && op != uniBxor);
}

// What rank `rank` holds at element i: small whole numbers, so that results are exact in every type
// and order.
inline int64_t value_at(uniDataType_t type, uniRedOp_t op, int rank, size_t i) {
  const auto r = static_cast<size_t>(rank);
  if (type == uniBool) return (i * 5 + r * 3) % 7 < 4 ? 1 : 0;
  if (op == uniProd) return i % 3 == 0 && rank % 4 == 0 ? 2 : 1;
  if (is_float(type)) return static_cast<int64_t>((i + 3 * r) % 8);
  return static_cast<int64_t>((i * 11 + r * 17) % 101);
}

inline int64_t reduced_at(uniDataType_t type, uniRedOp_t op, int ranks, size_t i) {
  int64_t result = value_at(type, op, 0, i);
  for (int r = 1; r < ranks; r++) {
    const int64_t v = value_at(type, op, r, i);
    switch (op) {
      case uniProd:
        result = type == uniBool ? (result & v) : result * v;
        break;
      case uniMax:
        result = result > v ? result : v;
        break;
      case uniMin:
        result = result < v ? result : v;
        break;
      case uniBand:
        result &= v;
        break;
      case uniBor:
        result |= v;
        break;
      case uniBxor:
        result ^= v;
        break;
      default:
        result = type == uniBool ? (result | v) : result + v;
        break;
    }
  }
  return result;
}

inline uint16_t bfloat16_bits(float v) {
  uint32_t bits = 0;
  std::memcpy(&bits, &v, 4);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline uint16_t float16_bits(float v) {
  const auto half = static_cast<_Float16>(v);
  uint16_t bits = 0;
  std::memcpy(&bits, &half, 2);
  return bits;
}

// Writes v (divided by n for averages: floats times 1/n, integers towards zero after wrapping) as
// one element.
inline void put(char* to, uniDataType_t type, int64_t v, int average_of = 0) {
  const float f = average_of == 0 ? static_cast<float>(v)
                                  : static_cast<float>(v) * (1.0f / static_cast<float>(average_of));
  const double d =
      average_of == 0 ? static_cast<double>(v) : static_cast<double>(v) * (1.0 / average_of);
  const uint16_t h = type == uniBfloat16 ? bfloat16_bits(f) : float16_bits(f);
  switch (type) {
    case uniFloat32:
      std::memcpy(to, &f, 4);
      return;
    case uniFloat64:
      std::memcpy(to, &d, 8);
      return;
    case uniFloat16:
    case uniBfloat16:
      std::memcpy(to, &h, 2);
      return;
    default:
      break;
  }
  // Wrap to the type first, then divide.
  int64_t wrapped = v;
  if (type == uniInt8) wrapped = static_cast<int8_t>(v);
  if (type == uniUint8) wrapped = static_cast<uint8_t>(v);
  if (type == uniInt32) wrapped = static_cast<int32_t>(v);
  if (type == uniUint32) wrapped = static_cast<uint32_t>(v);
  if (average_of != 0) wrapped /= average_of;
  std::memcpy(to, &wrapped, size_of(type));
}

inline std::vector<char> inputs(uniDataType_t type, uniRedOp_t op, int rank, size_t first,
                                size_t count) {
  std::vector<char> bytes(count * size_of(type));
  for (size_t i = 0; i < count; i++)
    put(bytes.data() + i * size_of(type), type, value_at(type, op, rank, first + i));
  return bytes;
}
inline std::vector<char> reduced(uniDataType_t type, uniRedOp_t op, int ranks, size_t first,
                                 size_t count) {
  std::vector<char> bytes(count * size_of(type));
  for (size_t i = 0; i < count; i++) {
    put(bytes.data() + i * size_of(type), type, reduced_at(type, op, ranks, first + i),
        op == uniAvg ? ranks : 0);
  }
  return bytes;
}

}  // namespace unisono::testing
