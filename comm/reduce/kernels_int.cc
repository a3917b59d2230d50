// Integers, which wrap, and bool, a byte that counts as 1 unless it is 0.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/reduce/kernels_int.cc"

#include <cstring>
#include <type_traits>

#include "comm/reduce/table.h"
#include "hwy/foreach_target.h"  // must come before highway.h
//
#include "comm/reduce/sweep-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace unisono::reduce {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace {

template <class T, class Fold>
struct IntKernel : Fold {
  using Memory = T;
  using Lane = T;
  template <class D>
  using Value = hn::Vec<D>;
  using Fold::Fold;
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const T* from, int) const {
    return this->enter(d, hn::LoadU(d, from));
  }
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> v, T* to) const {
    hn::StoreU(v, d, to);
  }
  template <class D>
  HWY_INLINE void stream(D d, hn::Vec<D> v, T* to) const {
    hn::Stream(v, d, to);
  }
};

struct IntFold {
  static constexpr bool kPairs = false;
  explicit IntFold(const ReduceArgs&) {}
  bool copies_one() const { return true; }
  template <class D, class V>
  HWY_INLINE V enter(D, V v) const {
    return v;
  }
  template <class D, class V>
  HWY_INLINE V finish(D, V v) const {
    return v;
  }
};

struct IntSum : IntFold {
  static constexpr bool kPairs = true;
  using IntFold::IntFold;
  template <class D, class V>
  HWY_INLINE V fold(D, V a, V b) const {
    return hn::Add(a, b);
  }
};

struct IntProd : IntFold {
  using IntFold::IntFold;
  template <class D, class V>
  HWY_INLINE V fold(D d, V a, V b) const {
    if constexpr (sizeof(hn::TFromD<D>) > 1) {
      return hn::Mul(a, b);
    } else if constexpr (hn::MaxLanes(D()) == 1) {
      return hn::Set(d, static_cast<uint8_t>(hn::GetLane(a) * hn::GetLane(b)));
    } else {  // no byte multiplication: even and odd bytes as 16-bit lanes
      const hn::Repartition<uint16_t, D> d16;
      const auto a16 = hn::BitCast(d16, a);
      const auto b16 = hn::BitCast(d16, b);
      const auto even = hn::And(hn::Mul(a16, b16), hn::Set(d16, 0x00ff));
      const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
      return hn::BitCast(d, hn::Or(even, odd));
    }
  }
};

template <bool kMax>
struct IntExtreme : IntFold {
  using IntFold::IntFold;
  template <class D, class V>
  HWY_INLINE V fold(D, V a, V b) const {
    return kMax ? hn::Max(a, b) : hn::Min(a, b);
  }
};

// The wrapped sum, divided towards zero at the end; division is lane by lane, since no instruction
// set has it.
template <char kBitOp>
struct BitFold : IntFold {
  using IntFold::IntFold;
  template <class D, class V>
  HWY_INLINE V fold(D, V a, V b) const {
    if constexpr (kBitOp == '&') return hn::And(a, b);
    if constexpr (kBitOp == '|') return hn::Or(a, b);
    if constexpr (kBitOp == '^') return hn::Xor(a, b);
  }
};

template <char kBitOp>
struct BoolFold : BitFold<kBitOp> {
  using BitFold<kBitOp>::BitFold;
  bool copies_one() const { return false; }
  template <class D, class V>
  HWY_INLINE V enter(D d, V v) const {
    return hn::Min(v, hn::Set(d, 1));
  }
};

// Bit operations work on bytes, whatever the type.
template <char kBitOp, size_t kBytes>
void run_bits(const ReduceArgs& args) {
  ReduceArgs bytes = args;
  bytes.count *= kBytes;
  run<IntKernel<uint8_t, BitFold<kBitOp>>>(bytes);
}

// The wrapped sum, then a division towards zero. Two passes: no instruction set divides integers,
// so the second one, lane by lane, takes most of the time anyway.
template <class T>
void run_avg(const ReduceArgs& args) {
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  ReduceArgs sum = args;
  const bool divides = args.divide_by != 0;
  if (divides) {
    sum.out = args.out != nullptr ? args.out : args.also;
    sum.also = nullptr;
    sum.stream = sum.stream_also = false;
  }
  run<IntKernel<std::make_unsigned_t<T>, IntSum>>(sum);
  if (!divides) return;
  char* const bytes = static_cast<char*>(sum.out);
  const Wide divisor = static_cast<Wide>(args.divide_by);
  for (size_t at = 0; at < args.count * sizeof(T); at += sizeof(T)) {
    T element;
    std::memcpy(&element, bytes + at, sizeof(T));  // perhaps not aligned
    element = static_cast<T>(static_cast<Wide>(element) / divisor);
    std::memcpy(bytes + at, &element, sizeof(T));
  }
  if (args.also != nullptr && args.also != sum.out) {
    std::memcpy(args.also, sum.out, args.count * sizeof(T));
  }
}

template <class T>
void fill_type(Table& table, DataType type) {
  using Bits = std::make_unsigned_t<T>;  // wrapping sums and products do not know signs
  cell(table, type, RedOp::kSum) = run<IntKernel<Bits, IntSum>>;
  cell(table, type, RedOp::kProd) = run<IntKernel<Bits, IntProd>>;
  cell(table, type, RedOp::kMax) = run<IntKernel<T, IntExtreme<true>>>;
  cell(table, type, RedOp::kMin) = run<IntKernel<T, IntExtreme<false>>>;
  cell(table, type, RedOp::kAvg) = run_avg<T>;
  cell(table, type, RedOp::kBand) = run_bits<'&', sizeof(T)>;
  cell(table, type, RedOp::kBor) = run_bits<'|', sizeof(T)>;
  cell(table, type, RedOp::kBxor) = run_bits<'^', sizeof(T)>;
}

void fill(Table& table) {
  fill_type<int8_t>(table, DataType::kInt8);
  fill_type<uint8_t>(table, DataType::kUint8);
  fill_type<int32_t>(table, DataType::kInt32);
  fill_type<uint32_t>(table, DataType::kUint32);
  fill_type<int64_t>(table, DataType::kInt64);
  fill_type<uint64_t>(table, DataType::kUint64);
  const ReduceFn any = run<IntKernel<uint8_t, BoolFold<'|'>>>;
  const ReduceFn all = run<IntKernel<uint8_t, BoolFold<'&'>>>;
  for (const RedOp op : {RedOp::kSum, RedOp::kMax, RedOp::kBor})
    cell(table, DataType::kBool, op) = any;
  for (const RedOp op : {RedOp::kProd, RedOp::kMin, RedOp::kBand})
    cell(table, DataType::kBool, op) = all;
  cell(table, DataType::kBool, RedOp::kBxor) = run<IntKernel<uint8_t, BoolFold<'^'>>>;
}
}  // namespace
#endif  // HWY_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace unisono::reduce
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace unisono::reduce {
void fill_int_kernels(int64_t target, Table& table) {
  UNISONO_FILL_TARGET(target, table);
}
}  // namespace unisono::reduce
#endif  // HWY_ONCE
