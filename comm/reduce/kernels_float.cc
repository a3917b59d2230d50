// float32 and float64: accumulated in themselves.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/reduce/kernels_float.cc"

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
struct FloatKernel : Fold {
  using Memory = T;
  using Lane = T;
  template <class D>
  using Value = hn::Vec<D>;
  using Fold::Fold;
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const T* from, int operand) const {
    return this->enter(d, hn::LoadU(d, from), operand);
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

template <class T>
void fill_type(Table& table, DataType type) {
  cell(table, type, RedOp::kSum) = run<FloatKernel<T, FloatSum>>;
  cell(table, type, RedOp::kProd) = run<FloatKernel<T, FloatProd>>;
  cell(table, type, RedOp::kMax) = run<FloatKernel<T, FloatExtreme<true>>>;
  cell(table, type, RedOp::kMin) = run<FloatKernel<T, FloatExtreme<false>>>;
  cell(table, type, RedOp::kAvg) = run<FloatKernel<T, FloatAvg<T>>>;
  cell(table, type, RedOp::kPreMulSum) = run<FloatKernel<T, FloatPreMulSum<T>>>;
}

void fill(Table& table) {
  fill_type<float>(table, DataType::kFloat32);
  fill_type<double>(table, DataType::kFloat64);
}
}  // namespace
#endif  // HWY_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace unisono::reduce
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace unisono::reduce {
void fill_float_kernels(int64_t target, Table& table) {
  UNISONO_FILL_TARGET(target, table);
}
int64_t compiled_targets() {
  return HWY_TARGETS & ~(HWY_SCALAR | HWY_EMU128);
}
}  // namespace unisono::reduce
#endif  // HWY_ONCE
