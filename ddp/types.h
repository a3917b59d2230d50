// Element types of unisono.h: how many bytes, what they are called.
#pragma once

#include <cstddef>
#include <cstring>

#include "unisono/unisono.h"

namespace unisono::ddp {

// A caller's type before it is checked: to read another value as the enumeration is undefined.
inline int raw_type(const uniDataType_t* type) {
  int value = 0;
  static_assert(sizeof value == sizeof *type);
  std::memcpy(&value, type, sizeof value);
  return value;
}

// 0 for a value that is no type.
inline size_t element_bytes(int type) {
  switch (type) {
    case uniInt8:
    case uniUint8:
    case uniBool:
      return 1;
    case uniFloat16:
    case uniBfloat16:
      return 2;
    case uniInt32:
    case uniUint32:
    case uniFloat32:
      return 4;
    case uniInt64:
    case uniUint64:
    case uniFloat64:
      return 8;
    default:
      return 0;
  }
}

// Those that have gradients; "?" for others.
inline const char* gradient_type_name(int type) {
  switch (type) {
    case uniFloat16:
      return "float16";
    case uniBfloat16:
      return "bfloat16";
    case uniFloat32:
      return "float32";
    case uniFloat64:
      return "float64";
    default:
      return "?";
  }
}

inline bool is_gradient_type(int type) {
  return *gradient_type_name(type) != '?';
}

}  // namespace unisono::ddp
