// The plain C++ kernels, target "scalar": the reference of all others, and what runs where no
// vector target does.
#include <bit>
#include <cmath>
#include <concepts>
#include <cstring>
#include <limits>
#include <type_traits>

#include "comm/reduce/half.h"
#include "comm/reduce/table.h"

namespace unisono::reduce {
namespace {

// How a type lies in memory and accumulates.
template <class T>
struct Plain {
  using Memory = T;
  using Value = T;
  static Value load(Memory memory) { return memory; }
  static Memory store(Value value) { return value; }
};
struct Half {
  using Memory = uint16_t;
  using Value = float;
  static Value load(Memory memory) { return float16_to_float(memory); }
  static Memory store(Value value) { return float_to_float16(value); }
};
struct Brain {
  using Memory = uint16_t;
  using Value = float;
  static Value load(Memory memory) { return bfloat16_to_float(memory); }
  static Memory store(Value value) { return float_to_bfloat16(value); }
};
struct Bool {
  using Memory = uint8_t;
  using Value = bool;
  static Value load(Memory memory) { return memory != 0; }
  static Memory store(Value value) { return value ? 1 : 0; }
};

template <std::floating_point T>
T one_nan(T value) {
  if (!std::isnan(value)) return value;
  if constexpr (sizeof(T) == 4) return std::bit_cast<float>(kFloat32Nan);
  return static_cast<T>(std::bit_cast<double>(kFloat64Nan));
}

template <class T>
T minimum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) ? a : b;
  }
  return b < a ? b : a;
}

template <class T>
T maximum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}

// Two's complement arithmetic without signed overflow. 64 bits, since narrower unsigned types
// promote to int.
template <class T>
T wrapped(uint64_t bits) {
  return static_cast<T>(bits);
}

template <RedOp kOp, class T>
T combine(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    if constexpr (kOp == RedOp::kBxor) return a != b;
    constexpr bool all = kOp == RedOp::kProd || kOp == RedOp::kMin || kOp == RedOp::kBand;
    return all ? a && b : a || b;
  } else if constexpr (kOp == RedOp::kMax) {
    return maximum(a, b);
  } else if constexpr (kOp == RedOp::kMin) {
    return minimum(a, b);
  } else if constexpr (std::is_floating_point_v<T>) {
    return kOp == RedOp::kProd ? a * b : a + b;
  } else {
    const uint64_t wide_a = static_cast<uint64_t>(a);
    const uint64_t wide_b = static_cast<uint64_t>(b);
    if constexpr (kOp == RedOp::kProd) return wrapped<T>(wide_a * wide_b);
    if constexpr (kOp == RedOp::kBand) return wrapped<T>(wide_a & wide_b);
    if constexpr (kOp == RedOp::kBor) return wrapped<T>(wide_a | wide_b);
    if constexpr (kOp == RedOp::kBxor) return wrapped<T>(wide_a ^ wide_b);
    return wrapped<T>(wide_a + wide_b);
  }
}

template <RedOp kOp, class T>
T finish(T value, int64_t divide_by) {
  if constexpr (std::is_floating_point_v<T>) {
    const bool divides = kOp == RedOp::kAvg && divide_by != 0;
    return one_nan(divides ? value * (T{1} / static_cast<T>(divide_by)) : value);
  } else if constexpr (kOp == RedOp::kAvg) {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    if (divide_by == 0) return value;
    return static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(divide_by));
  } else {
    return value;
  }
}

// Elements by memcpy: callers may hand us addresses that are not aligned to the element.
template <class Memory>
Memory read(const void* base, size_t index) {
  Memory value;
  std::memcpy(&value, static_cast<const char*>(base) + index * sizeof(Memory), sizeof(Memory));
  return value;
}
template <class Memory>
void write(void* base, size_t index, Memory value) {
  std::memcpy(static_cast<char*>(base) + index * sizeof(Memory), &value, sizeof(Memory));
}

template <class Type, RedOp kOp>
void run(const ReduceArgs& args) {
  using Memory = typename Type::Memory;
  using Value = typename Type::Value;
  constexpr bool scales = kOp == RedOp::kPreMulSum;
  const bool scaled_first = scales && args.prescale != nullptr && args.prescale[0] != 0;
  const bool divides = kOp == RedOp::kAvg && args.divide_by != 0;
  if (args.operands == 1 && !scaled_first && !divides && !std::is_same_v<Value, bool>) {
    copy_operand(args, args.count * sizeof(Memory));
    return;
  }
  for (size_t i = 0; i < args.count; i++) {
    Value value{};
    for (int k = 0; k < args.operands; k++) {
      Value next = Type::load(read<Memory>(args.in[k], i));
      if constexpr (scales) {
        if (args.prescale != nullptr && args.prescale[k] != 0)
          next *= static_cast<Value>(args.scalar);
      }
      value = k == 0 ? next : combine<kOp>(value, next);
    }
    const Memory result = Type::store(finish<kOp>(value, args.divide_by));
    if (args.out != nullptr) write(args.out, i, result);
    if (args.also != nullptr) write(args.also, i, result);
  }
}

template <class Type>
void fill_type(Table& table, DataType type) {
  using Value = typename Type::Value;
  cell(table, type, RedOp::kSum) = run<Type, RedOp::kSum>;
  cell(table, type, RedOp::kProd) = run<Type, RedOp::kProd>;
  cell(table, type, RedOp::kMax) = run<Type, RedOp::kMax>;
  cell(table, type, RedOp::kMin) = run<Type, RedOp::kMin>;
  if constexpr (!std::is_same_v<Value, bool>) {
    cell(table, type, RedOp::kAvg) = run<Type, RedOp::kAvg>;
  }
  if constexpr (std::is_floating_point_v<Value>) {
    cell(table, type, RedOp::kPreMulSum) = run<Type, RedOp::kPreMulSum>;
  } else {
    cell(table, type, RedOp::kBand) = run<Type, RedOp::kBand>;
    cell(table, type, RedOp::kBor) = run<Type, RedOp::kBor>;
    cell(table, type, RedOp::kBxor) = run<Type, RedOp::kBxor>;
  }
}

}  // namespace

void fill_scalar_kernels(Table& table) {
  fill_type<Plain<int8_t>>(table, DataType::kInt8);
  fill_type<Plain<uint8_t>>(table, DataType::kUint8);
  fill_type<Plain<int32_t>>(table, DataType::kInt32);
  fill_type<Plain<uint32_t>>(table, DataType::kUint32);
  fill_type<Plain<int64_t>>(table, DataType::kInt64);
  fill_type<Plain<uint64_t>>(table, DataType::kUint64);
  fill_type<Half>(table, DataType::kFloat16);
  fill_type<Brain>(table, DataType::kBfloat16);
  fill_type<Plain<float>>(table, DataType::kFloat32);
  fill_type<Plain<double>>(table, DataType::kFloat64);
  fill_type<Bool>(table, DataType::kBool);
}

}  // namespace unisono::reduce
