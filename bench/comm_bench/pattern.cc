#include "bench/comm_bench/pattern.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace bench {
namespace {

// Small whole numbers. Products keep to a few factors of two; averages need no more than the sum.
int64_t value(uniRedOp_t op, int rank, int ranks, size_t i) {
  const auto r = static_cast<size_t>(rank);
  if (op == uniProd)
    return i % static_cast<size_t>(ranks) == r ? 1 + static_cast<int64_t>(i % 2) : 1;
  if (op == uniBand || op == uniBor || op == uniBxor)
    return static_cast<int64_t>((i * 7 + r * 5) % 127);
  return static_cast<int64_t>((i + 2 * r) % 4);
}

int64_t reduce(uniRedOp_t op, int ranks, size_t i) {
  int64_t result = value(op, 0, ranks, i);
  for (int r = 1; r < ranks; r++) {
    const int64_t v = value(op, r, ranks, i);
    switch (op) {
      case uniProd:
        result *= v;
        break;
      case uniMax:
        result = std::max(result, v);
        break;
      case uniMin:
        result = std::min(result, v);
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
        result += v;
        break;
    }
  }
  return result;
}

int64_t reduce_bool(uniRedOp_t op, int ranks, size_t i) {
  bool any = false, all = true, odd = false;
  for (int r = 0; r < ranks; r++) {
    const bool v = value(op, r, ranks, i) != 0;
    any = any || v;
    all = all && v;
    odd = odd != v;
  }
  if (op == uniProd || op == uniMin || op == uniBand) return all ? 1 : 0;
  return (op == uniBxor ? odd : any) ? 1 : 0;
}

template <class T>
void append(std::string* out, T v) {
  out->append(reinterpret_cast<const char*>(&v), sizeof v);
}

// To nearest even; finite values only.
uint16_t to_bfloat16(float v) {
  uint32_t bits = 0;
  std::memcpy(&bits, &v, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t to_half(float v) {
  const auto half = static_cast<_Float16>(v);
  uint16_t bits = 0;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}

// `scale` is 1/n for averages, in the accumulation type.
void append_float(std::string* out, uniDataType_t type, int64_t v, int divide_by) {
  if (type == uniFloat64)
    return append(
        out, divide_by == 0 ? static_cast<double>(v) : static_cast<double>(v) * (1.0 / divide_by));
  const float scaled = divide_by == 0
                           ? static_cast<float>(v)
                           : static_cast<float>(v) * (1.0f / static_cast<float>(divide_by));
  if (type == uniFloat32) return append(out, scaled);
  append(out, type == uniFloat16 ? to_half(scaled) : to_bfloat16(scaled));
}

void append_value(std::string* out, const TypeRow& type, int64_t v, int divide_by) {
  switch (type.type) {
    case uniFloat16:
    case uniFloat32:
    case uniFloat64:
    case uniBfloat16:
      return append_float(out, type.type, v, divide_by);
    default:
      break;
  }
  const int64_t whole = divide_by == 0 ? v : v / divide_by;
  out->append(reinterpret_cast<const char*>(&whole), type.bytes);  // little-endian: the low bytes
}

}  // namespace

std::string input_period(const TypeRow& type, uniRedOp_t op, int rank, int ranks) {
  std::string period;
  for (size_t i = 0; i < kPeriod; i++) {
    const int64_t v = value(op, rank, ranks, i);
    append_value(&period, type, type.type == uniBool ? (v != 0 ? 1 : 0) : v, 0);
  }
  return period;
}

std::string reduced_period(const TypeRow& type, uniRedOp_t op, int ranks) {
  std::string period;
  for (size_t i = 0; i < kPeriod; i++) {
    const int64_t v = type.type == uniBool ? reduce_bool(op, ranks, i) : reduce(op, ranks, i);
    append_value(&period, type, v, op == uniAvg ? ranks : 0);
  }
  return period;
}

void fill(void* to, const std::string& period, size_t type_bytes, size_t first, size_t count) {
  auto* at = static_cast<char*>(to);
  for (size_t phase = first % kPeriod; count > 0; phase = 0) {
    const size_t run = std::min(kPeriod - phase, count);
    std::memcpy(at, period.data() + phase * type_bytes, run * type_bytes);
    at += run * type_bytes;
    count -= run;
  }
}

size_t count_wrong(const void* from, const std::string& period, size_t type_bytes, size_t first,
                   size_t count) {
  const auto* at = static_cast<const char*>(from);
  size_t wrong = 0;
  for (size_t phase = first % kPeriod; count > 0; phase = 0) {
    const size_t run = std::min(kPeriod - phase, count);
    const char* expected = period.data() + phase * type_bytes;
    if (std::memcmp(at, expected, run * type_bytes) != 0) {
      for (size_t i = 0; i < run; i++) {
        wrong += std::memcmp(at + i * type_bytes, expected + i * type_bytes, type_bytes) != 0;
      }
    }
    at += run * type_bytes;
    count -= run;
  }
  return wrong;
}

}  // namespace bench
