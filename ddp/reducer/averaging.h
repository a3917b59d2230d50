// The loops over gradients: scaling and casting. Any thread; they touch only what they are given.
#pragma once

#include <cstddef>

#include "unisono/unisono.h"

namespace unisono::ddp {

// to[i] = from[i] * factor; 16-bit types by way of float32, rounded once. to == from is allowed,
// other overlap is not.
void scale(void* to, const void* from, size_t count, uniDataType_t type, double factor);

// In place: `count` float32 or float64 at data become as many 16-bit elements at its front, each
// times factor.
void narrow(void* data, size_t count, uniDataType_t type, uniDataType_t narrow_type, double factor);
// Back again: the 16-bit elements at the front of data fill `count` of type.
void widen(void* data, size_t count, uniDataType_t type, uniDataType_t narrow_type);

}  // namespace unisono::ddp
