#include "ddp/reducer/averaging.h"

#include <cstdint>
#include <cstring>

#include "ddp/reducer/half.h"
#include "ddp/reducer/half_x86.h"

namespace unisono::ddp {
namespace {

// A block is read whole before it is written, and has a fixed length: so compilers vectorise it at
// -O2, and results may overlap what is read as long as the order of blocks is right.
constexpr size_t kBlock = 32;

template <size_t kCount, class From, class To, class Function>
inline void transform_block(const std::byte* from, std::byte* to, size_t at, Function function) {
  From in[kCount];
  To out[kCount];
  std::memcpy(in, from + at * sizeof(From), sizeof in);
  for (size_t i = 0; i < kCount; i++) out[i] = function(in[i]);
  std::memcpy(to + at * sizeof(To), out, sizeof out);
}

template <class From, class To, class Function>
void front_to_back(const void* from, void* to, size_t count, Function function) {
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  size_t at = 0;
  for (; at + kBlock <= count; at += kBlock) {
    transform_block<kBlock, From, To>(source, target, at, function);
  }
  for (; at < count; at++) transform_block<1, From, To>(source, target, at, function);
}

template <class From, class To, class Function>
void back_to_front(void* data, size_t count, Function function) {
  auto* both = static_cast<std::byte*>(data);
  size_t at = count;
  for (; at % kBlock != 0; at--) transform_block<1, From, To>(both, both, at - 1, function);
  for (; at > 0; at -= kBlock) transform_block<kBlock, From, To>(both, both, at - kBlock, function);
}

template <class Wide>
void narrow_from(void* data, size_t count, uniDataType_t narrow_type, float divisor) {
  if (narrow_type == uniFloat16) {
    front_to_back<Wide, uint16_t>(data, data, count, [divisor](Wide value) {
      const uint16_t cast = float_to_float16(static_cast<float>(value));
      return float_to_float16(float16_to_float(cast) / divisor);
    });
  } else {
    front_to_back<Wide, uint16_t>(data, data, count, [divisor](Wide value) {
      const uint16_t cast = float_to_bfloat16(static_cast<float>(value));
      return float_to_bfloat16(bfloat16_to_float(cast) / divisor);
    });
  }
}

template <class Wide>
void widen_to(void* data, size_t count, uniDataType_t narrow_type) {
  if (narrow_type == uniFloat16) {
    back_to_front<uint16_t, Wide>(
        data, count, [](uint16_t half) { return static_cast<Wide>(float16_to_float(half)); });
  } else {
    back_to_front<uint16_t, Wide>(
        data, count, [](uint16_t half) { return static_cast<Wide>(bfloat16_to_float(half)); });
  }
}

}  // namespace

void scale(void* to, const void* from, size_t count, uniDataType_t type, double factor) {
  const auto single = static_cast<float>(factor);
  switch (type) {
    case uniFloat16:
      return front_to_back<uint16_t, uint16_t>(from, to, count, [single](uint16_t value) {
        return float_to_float16(float16_to_float(value) * single);
      });
    case uniBfloat16:
      return front_to_back<uint16_t, uint16_t>(from, to, count, [single](uint16_t value) {
        return float_to_bfloat16(bfloat16_to_float(value) * single);
      });
    case uniFloat32:
      return front_to_back<float, float>(from, to, count,
                                         [single](float value) { return value * single; });
    default:
      return front_to_back<double, double>(from, to, count,
                                           [factor](double value) { return value * factor; });
  }
}

void narrow(void* data, size_t count, uniDataType_t type, uniDataType_t narrow_type, int divisor) {
  const auto single = static_cast<float>(divisor);
  if (type == uniFloat64) return narrow_from<double>(data, count, narrow_type, single);
  if (has_x86_halves()) return narrow_by_x86(data, count, narrow_type, single);
  narrow_from<float>(data, count, narrow_type, single);
}

void widen(void* data, size_t count, uniDataType_t type, uniDataType_t narrow_type) {
  if (type == uniFloat64) return widen_to<double>(data, count, narrow_type);
  if (has_x86_halves()) return widen_by_x86(data, count, narrow_type);
  widen_to<float>(data, count, narrow_type);
}

}  // namespace unisono::ddp
