// float16 and bfloat16: accumulated in float32, rounded once when stored.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/reduce/kernels_half.cc"

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

// Values are canonical NaN or numbers when they are stored (with_one_nan), which both roundings
// below rely on.
struct Bfloat16Format {
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<hn::Rebind<uint16_t, D>> bits) {
    const hn::RebindToUnsigned<D> du32;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> narrow(D, hn::Vec<D> v) {
    const hn::RebindToUnsigned<D> du32;
    const hn::RebindToSigned<D> di32;
    const auto bits = hn::BitCast(du32, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du32, 0x7fff)), odd);
    return hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(di32, hn::ShiftRight<16>(rounded)));
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

template <class Format, class Fold>
struct HalfKernel : Fold {
  using Memory = uint16_t;
  using Lane = float;
  static constexpr bool kPairs = true;
  static constexpr size_t kMemoryPerElement = 1;
  using Fold::Fold;
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const uint16_t* from, int operand) const {
    return this->enter(d, Format::widen(d, hn::LoadU(hn::Rebind<uint16_t, D>(), from)), operand);
  }
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> v, uint16_t* to) const {
    hn::StoreU(Format::narrow(d, v), hn::Rebind<uint16_t, D>(), to);
  }
  // Non-temporal stores below 16 bytes do not exist: Highway would write more than the lanes.
  template <class D>
  HWY_INLINE void stream(D d, hn::Vec<D> v, uint16_t* to) const {
    if constexpr (hn::MaxLanes(d) * sizeof(uint16_t) >= 16) {
      hn::Stream(Format::narrow(d, v), hn::Rebind<uint16_t, D>(), to);
    } else {
      store(d, v, to);
    }
  }
};

template <class Format>
void fill_type(Table& table, DataType type) {
  cell(table, type, RedOp::kSum) = run<HalfKernel<Format, FloatSum>>;
  cell(table, type, RedOp::kProd) = run<HalfKernel<Format, FloatProd>>;
  cell(table, type, RedOp::kMax) = run<HalfKernel<Format, FloatExtreme<true>>>;
  cell(table, type, RedOp::kMin) = run<HalfKernel<Format, FloatExtreme<false>>>;
  cell(table, type, RedOp::kAvg) = run<HalfKernel<Format, FloatAvg<float>>>;
  cell(table, type, RedOp::kPreMulSum) = run<HalfKernel<Format, FloatPreMulSum<float>>>;
}

void fill(Table& table) {
  fill_type<Float16Format>(table, DataType::kFloat16);
  fill_type<Bfloat16Format>(table, DataType::kBfloat16);
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
