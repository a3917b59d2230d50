#include "base/types.h"

#include <array>

namespace unisono {
namespace {

struct TypeRow {
  const char* name;
  const char* alias;  // nccl-tests' word
  size_t bytes;
  bool is_float;
};
constexpr std::array<TypeRow, kDataTypes> kTypes = {{
    {"int8", "char", 1, false},
    {"uint8", "uchar", 1, false},
    {"int32", "int", 4, false},
    {"uint32", "uint", 4, false},
    {"int64", "long", 8, false},
    {"uint64", "ulong", 8, false},
    {"float16", "half", 2, true},
    {"float32", "float", 4, true},
    {"float64", "double", 8, true},
    {"bfloat16", "bf16", 2, true},
    {"bool", "bool", 1, false},
}};
constexpr std::array<const char*, kRedOps> kOpNames = {"sum",  "prod", "max",  "min",      "avg",
                                                       "band", "bor",  "bxor", "premulsum"};
constexpr std::array<const char*, kCollectives> kCollectiveNames = {
    "all_reduce", "reduce",  "broadcast",  "all_gather", "reduce_scatter",
    "gather",     "scatter", "all_to_all", "barrier"};

template <class Names, class Enum>
bool parse_name(const Names& names, std::string_view word, Enum* value) {
  for (size_t i = 0; i < names.size(); i++) {
    if (word != names[i]) continue;
    *value = static_cast<Enum>(i);
    return true;
  }
  return false;
}

}  // namespace

size_t type_bytes(DataType type) {
  return kTypes[static_cast<size_t>(type)].bytes;
}
const char* type_name(DataType type) {
  return kTypes[static_cast<size_t>(type)].name;
}
bool is_float(DataType type) {
  return kTypes[static_cast<size_t>(type)].is_float;
}
const char* op_name(RedOp op) {
  return kOpNames[static_cast<size_t>(op)];
}
const char* collective_name(Collective collective) {
  return kCollectiveNames[static_cast<size_t>(collective)];
}

bool has_root(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kBroadcast ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

bool has_op(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

bool op_allowed(RedOp op, DataType type) {
  if (op == RedOp::kPreMulSum) return is_float(type);
  if (op == RedOp::kAvg) return type != DataType::kBool;
  const bool bits = op == RedOp::kBand || op == RedOp::kBor || op == RedOp::kBxor;
  return !bits || !is_float(type);
}

bool parse_type(std::string_view word, DataType* type) {
  for (size_t i = 0; i < kTypes.size(); i++) {
    if (word != kTypes[i].name && word != kTypes[i].alias) continue;
    *type = static_cast<DataType>(i);
    return true;
  }
  return false;
}

bool parse_op(std::string_view word, RedOp* op) {
  return parse_name(kOpNames, word, op);
}

bool parse_collective(std::string_view word, Collective* collective) {
  return parse_name(kCollectiveNames, word, collective);
}

}  // namespace unisono
