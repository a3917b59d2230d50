// float16 and bfloat16: accumulated in float32, rounded once when stored.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/reduce/kernels_half.cc"

#include <cstring>

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

// Values are canonical NaN or numbers when they are stored (with_one_nan), which the roundings
// below rely on.

// Even and odd elements in vectors of their own: both are a shift or a mask away from float32, in
// either direction.
template <class D32>
struct EvenOdd {
  hn::Vec<D32> even;
  hn::Vec<D32> odd;
};

template <class Fold>
struct Bfloat16Kernel : Fold {
  using Memory = uint16_t;
  using Lane = uint16_t;
  using Fold::Fold;
  template <class D>
  static constexpr size_t kFloats = (hn::MaxLanes(D()) + 1) / 2;  // a single element counts twice
  template <class D>
  using Floats = hn::FixedTag<float, kFloats<D>>;
  template <class D>
  using Value = EvenOdd<Floats<D>>;

  template <class D>
  HWY_INLINE Value<D> load(D, const uint16_t* from, int operand) const {
    const Floats<D> df;
    const hn::RebindToUnsigned<Floats<D>> du32;
    hn::Vec<decltype(du32)> bits;
    if constexpr (hn::MaxLanes(D()) == 1) {
      uint16_t element;
      std::memcpy(&element, from, sizeof element);  // perhaps not aligned
      bits = hn::Set(du32, element);
    } else {
      bits = hn::BitCast(du32, hn::LoadU(D(), from));
    }
    const auto even = hn::BitCast(df, hn::ShiftLeft<16>(bits));
    const auto odd = hn::BitCast(df, hn::And(bits, hn::Set(du32, 0xffff0000)));
    return {this->enter(df, even, operand), this->enter(df, odd, operand)};
  }
  template <class D, class V>
  HWY_INLINE V fold(D, V a, V b) const {
    const Floats<D> df;
    return {Fold::fold(df, a.even, b.even), Fold::fold(df, a.odd, b.odd)};
  }
  template <class D, class V>
  HWY_INLINE V finish(D, V v) const {
    const Floats<D> df;
    return {Fold::finish(df, v.even), Fold::finish(df, v.odd)};
  }
  // To nearest, ties to even, in the upper halves of the lanes.
  template <class DF>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> rounded(DF, hn::Vec<DF> v) {
    const hn::RebindToUnsigned<DF> du32;
    const auto bits = hn::BitCast(du32, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1));
    return hn::Add(hn::Add(bits, hn::Set(du32, 0x7fff)), odd);
  }
  template <class D>
  static HWY_INLINE auto merged(D, const Value<D>& v) {
    const Floats<D> df;
    const hn::RebindToUnsigned<Floats<D>> du32;
    const hn::Repartition<uint16_t, Floats<D>> du16;
    const auto even = hn::BitCast(du16, hn::ShiftRight<16>(rounded(df, v.even)));
    return hn::OddEven(hn::BitCast(du16, rounded(df, v.odd)), even);
  }
  template <class D>
  HWY_INLINE void store(D d, const Value<D>& v, uint16_t* to) const {
    if constexpr (hn::MaxLanes(D()) == 1) {
      const uint16_t element = hn::GetLane(merged(d, v));
      std::memcpy(to, &element, sizeof element);
    } else {
      hn::StoreU(merged(d, v), d, to);
    }
  }
  template <class D>
  HWY_INLINE void stream(D d, const Value<D>& v, uint16_t* to) const {
    hn::Stream(merged(d, v), d, to);
  }
};

struct Float16Format {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<hn::Rebind<uint16_t, D>> bits) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> narrow(D, hn::Vec<D> v) {
    const hn::Rebind<hwy::float16_t, D> df16;
    return hn::BitCast(hn::Rebind<uint16_t, D>(), hn::DemoteTo(df16, v));
  }
#else
  // Highway's own conversion without F16C truncates and knows neither infinity nor NaN.
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<hn::Rebind<uint16_t, D>> bits) {
    const hn::RebindToUnsigned<D> du32;
    const auto wide = hn::PromoteTo(du32, bits);
    const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du32, 0x8000)));
    const auto shifted = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du32, 0x7fff)));
    // The multiplication moves the exponent's bias and normalises subnormals, exactly.
    const auto value = hn::BitCast(du32, hn::Mul(hn::BitCast(d, shifted), hn::Set(d, 0x1p112f)));
    const hn::RebindToSigned<D> di32;
    const auto special =
        hn::Gt(hn::BitCast(di32, shifted), hn::Set(di32, 0x0f7fffff));  // infinity or NaN
    const auto infinite = hn::Or(value, hn::Set(du32, 0x7f800000));
    const auto magnitude = hn::IfThenElse(hn::RebindMask(du32, special), infinite, value);
    return hn::BitCast(d, hn::Or(sign, magnitude));
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> narrow(D d, hn::Vec<D> v) {
    const hn::RebindToUnsigned<D> du32;
    const hn::RebindToSigned<D> di32;
    const auto bits = hn::BitCast(du32, v);
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 0x8000));
    const auto magnitude = hn::And(bits, hn::Set(du32, 0x7fffffff));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du32, 1));
    const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(du32, 0xfff)), odd);
    const auto normal =
        hn::BitCast(di32, hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(du32, 0x38000000))));
    // The unit in the last place of 0.5f is the least float16 subnormal: adding rounds to it.
    const auto aligned = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
    const auto subnormal = hn::Sub(hn::BitCast(di32, aligned), hn::Set(di32, 0x3f000000));
    const auto wide = hn::BitCast(di32, magnitude);
    const auto is_subnormal = hn::Lt(wide, hn::Set(di32, 0x38800000));
    const auto is_nan = hn::Gt(wide, hn::Set(di32, 0x7f800000));
    auto half = hn::IfThenElse(is_subnormal, subnormal, hn::Min(normal, hn::Set(di32, 0x7c00)));
    half = hn::IfThenElse(is_nan, hn::Set(di32, kFloat16Nan), half);
    return hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::Or(half, hn::BitCast(di32, sign)));
  }
#endif
};

template <class Fold>
struct Float16Kernel : Fold {
  using Memory = uint16_t;
  using Lane = float;
  using Fold::Fold;
  template <class D>
  using Value = hn::Vec<D>;
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const uint16_t* from, int operand) const {
    return this->enter(d, Float16Format::widen(d, hn::LoadU(hn::Rebind<uint16_t, D>(), from)),
                       operand);
  }
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> v, uint16_t* to) const {
    hn::StoreU(Float16Format::narrow(d, v), hn::Rebind<uint16_t, D>(), to);
  }
  // Non-temporal stores below 16 bytes do not exist: Highway would write more than the lanes.
  template <class D>
  HWY_INLINE void stream(D d, hn::Vec<D> v, uint16_t* to) const {
    if constexpr (hn::MaxLanes(D()) * sizeof(uint16_t) >= 16) {
      hn::Stream(Float16Format::narrow(d, v), hn::Rebind<uint16_t, D>(), to);
    } else {
      store(d, v, to);
    }
  }
};

template <template <class> class Kernel>
void fill_type(Table& table, DataType type) {
  cell(table, type, RedOp::kSum) = run<Kernel<FloatSum>>;
  cell(table, type, RedOp::kProd) = run<Kernel<FloatProd>>;
  cell(table, type, RedOp::kMax) = run<Kernel<FloatExtreme<true>>>;
  cell(table, type, RedOp::kMin) = run<Kernel<FloatExtreme<false>>>;
  cell(table, type, RedOp::kAvg) = run<Kernel<FloatAvg<float>>>;
  cell(table, type, RedOp::kPreMulSum) = run<Kernel<FloatPreMulSum<float>>>;
}

void fill(Table& table) {
  fill_type<Float16Kernel>(table, DataType::kFloat16);
  fill_type<Bfloat16Kernel>(table, DataType::kBfloat16);
}
}  // namespace
#endif  // HWY_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace unisono::reduce
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace unisono::reduce {
void fill_half_kernels(int64_t target, Table& table) {
  UNISONO_FILL_TARGET(target, table);
}
}  // namespace unisono::reduce
#endif  // HWY_ONCE
