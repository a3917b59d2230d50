// Element types, reduction operations and collectives: the tables that everything is tested from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace unisono {

// Values equal uniDataType_t's.
enum class DataType : uint8_t {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
  kBool,
};
inline constexpr int kDataTypes = 11;

// Values equal uniRedOp_t's; kPreMulSum stands for every created one (the scalar travels beside
// it).
enum class RedOp : uint8_t { kSum, kProd, kMax, kMin, kAvg, kBand, kBor, kBxor, kPreMulSum };
inline constexpr int kRedOps = 9;

enum class Collective : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,
};
inline constexpr int kCollectives = 9;

size_t type_bytes(DataType type);
const char* type_name(DataType type);  // "float32", as nccl-tests: float, half: see parse_type
const char* op_name(RedOp op);         // "sum"
const char* collective_name(Collective collective);  // "all_reduce"
bool is_float(DataType type);
bool has_root(Collective collective);  // reduce, broadcast, gather, scatter
bool has_op(Collective collective);    // all-reduce, reduce, reduce-scatter
bool op_allowed(RedOp op,
                DataType type);  // bit operations: integers and bool; pre-multiplied sum: floats
// Accept the names above and nccl-tests' ("float", "half", "double", "bfloat16", "int8", ...).
// False: unknown.
bool parse_type(std::string_view word, DataType* type);
bool parse_op(std::string_view word, RedOp* op);
bool parse_collective(std::string_view word, Collective* collective);

}  // namespace unisono
