// narrow() and widen() of averaging.h for float32, by x86's own instructions (AVX2, F16C): several
// times as fast as the arithmetic of half.h, and with the same results, but that a NaN keeps what
// float16 has room for of its payload. Any thread; they touch only what they are given.
#pragma once

#include <cstddef>

#include "unisono/unisono.h"

namespace unisono::ddp {

// The others are to be called only where this is true.
bool has_x86_halves();

void narrow_by_x86(void* data, size_t count, uniDataType_t narrow_type, float divisor);
void widen_by_x86(void* data, size_t count, uniDataType_t narrow_type);

}  // namespace unisono::ddp
