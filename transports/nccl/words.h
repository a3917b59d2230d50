// Our words for types and operations in NCCL's.
#pragma once

#include <optional>

#include "base/types.h"
#include "transports/nccl/api.h"

namespace unisono::nccl {

// Bool travels as bytes.
inline NcclType type_of(DataType type) {
  return type == DataType::kBool ? kUint8 : static_cast<NcclType>(type);
}

// None: NCCL has no such operation. Of bool "or" is the maximum and "and" the minimum of bytes,
// which is not 0 exactly when it should be.
inline std::optional<NcclOp> op_of(RedOp op, DataType type) {
  const bool is_bool = type == DataType::kBool;
  switch (op) {
    case RedOp::kSum:
      return is_bool ? kMax : kSum;
    case RedOp::kProd:
      return is_bool ? kMin : kProd;
    case RedOp::kMax:
      return kMax;
    case RedOp::kMin:
      return kMin;
    case RedOp::kAvg:
      return kAvg;
    case RedOp::kBand:
      return is_bool ? std::optional(kMin) : std::nullopt;
    case RedOp::kBor:
      return is_bool ? std::optional(kMax) : std::nullopt;
    default:
      return std::nullopt;
  }
}

static_assert(static_cast<int>(DataType::kInt8) == kInt8);
static_assert(static_cast<int>(DataType::kUint64) == kUint64);
static_assert(static_cast<int>(DataType::kFloat16) == kFloat16);
static_assert(static_cast<int>(DataType::kBfloat16) == kBfloat16);

}  // namespace unisono::nccl
