// The loops over gradients: scaling and casting. Any thread; they touch only what they are given.
#pragma once

#include <cstddef>

#include "unisono/unisono.h"

namespace unisono::ddp {

// The sum of float16 gradients may pass 65,504 before it is divided: they are divided first, as
// they go into their bucket. All others are divided where the sum is made (uniAvg): no pass over
// memory of its own, and one rounding.
inline bool is_divided_before_sum(uniDataType_t type) {
  return type == uniFloat16;
}

// to[i] = from[i] * factor; 16-bit types by way of float32, rounded once. to == from is allowed,
// other overlap is not.
void scale(void* to, const void* from, size_t count, uniDataType_t type, double factor);

// In place: `count` float32 or float64 at data become as many 16-bit elements at its front: cast,
// then divided and rounded again. In that order, since PyTorch's hooks do so: the other order
// differs among float16's subnormals, and where divisor is no power of two.
void narrow(void* data, size_t count, uniDataType_t type, uniDataType_t narrow_type, int divisor);
// Back again: the 16-bit elements at the front of data fill `count` of type.
void widen(void* data, size_t count, uniDataType_t type, uniDataType_t narrow_type);

}  // namespace unisono::ddp
