// Reduction kernels: out[i] = in[0][i] op in[1][i] op ... left to right, in the accumulation type,
// rounded once.
//
// Accumulation: f16 and bf16 in f32, everything else in its own type (integers wrap). All
// instruction-set targets give the same bits (no fused multiply-add, no reassociation across
// operands). Pointers need only element alignment; `out` and `also` may equal any in[k] exactly,
// and may not overlap otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace unisono {

struct ReduceArgs {
  // Not in their natural order: out and also side by side would be loaded as one vector right after
  // they were stored as two words, which no store buffer forwards.
  void* out = nullptr;  // may be null if `also` is not
  const void* const* in = nullptr;
  void* also = nullptr;  // a second copy of the result, or null
  const uint8_t* prescale =
      nullptr;        // per operand, 1: multiply by *scalar first (pre-multiplied sum); null: none
  int operands = 0;   // >= 1; 1 is a copy (with prescale and divide applied)
  size_t count = 0;   // elements
  double scalar = 1;  // of kPreMulSum, exactly representable in the type (or f32 for f16, bf16)
  int64_t divide_by = 0;  // kAvg's final step: n; 0: not final
  // Non-temporal stores, fenced before returning: a hint, which shapes that rule it out ignore.
  bool stream = false;       // to `out`
  bool stream_also = false;  // to `also`
};

using ReduceFn = void (*)(const ReduceArgs&);

// The best kernel that this processor runs, chosen once (UNISONO_KERNELS overrides). Never null for
// allowed pairs.
ReduceFn reduce_kernel(DataType type, RedOp op);
// memcpy with non-temporal stores when `stream`; fenced.
void copy_bytes(void* to, const void* from, size_t bytes, bool stream);

// Targets of this build that this processor runs, worst first: "scalar", "avx2", "avx512", ... For
// tests and info.
std::vector<const char*> kernel_targets();
const char* kernel_target();                    // in use
bool set_kernel_target(std::string_view name);  // tests; false: not available here

}  // namespace unisono
