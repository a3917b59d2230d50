// The loops of all vector kernels, compiled once a target. A kernel K says how one vector of lanes
// is made:
//   K::Memory, K::Lane                 element type in memory; lane type of the tags d below, one
//   lane an element K::Value<D>                        such vectors in the accumulation type
//   K(args)                            reads scalars out of the arguments
//   K::kPairs                          worth a loop of its own for two operands
//   copies_one()                       true: a single operand passes unchanged
//   load(d, pointer, operand)          a vector in the accumulation type
//   fold(d, a, b)                      a op b
//   finish(d, a)                       what is done once at the end
//   store(d, a, pointer), stream(...)  rounds and writes
// A block reads all its operands before it writes, so exact aliasing of outputs and inputs is safe.
// The tail is done in halving vectors, never by reading past the end.
#if defined(UNISONO_COMM_REDUCE_SWEEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef UNISONO_COMM_REDUCE_SWEEP_INL_H_
#undef UNISONO_COMM_REDUCE_SWEEP_INL_H_
#else
#define UNISONO_COMM_REDUCE_SWEEP_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "comm/reduce/half.h"
#include "comm/reduce/table.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace unisono::reduce {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

template <class K>
struct Sweep {
  using Memory = typename K::Memory;
  using Lane = typename K::Lane;
  static constexpr size_t kFullLanes = HWY_LANES(Lane);
  static constexpr size_t kUnroll = 4;
  static constexpr size_t kBlock = kUnroll * kFullLanes;

  const K& kernel;
  Memory* out;
  Memory* also;  // or null
  const void* const* in;
  int operands;
  bool stream_out = false, stream_also = false;  // for block<..., kStream = true>

  HWY_INLINE const Memory* operand(int k, size_t at) const {
    return static_cast<const Memory*>(in[k]) + at;
  }

  // kOperands: known number of operands, or 0.
  template <size_t kLanes, size_t kVectors, int kOperands, bool kStream>
  HWY_INLINE void block(size_t at) const {
    const hn::FixedTag<Lane, kLanes> d;
    typename K::template Value<hn::FixedTag<Lane, kLanes>> sum[kVectors];
    for (size_t v = 0; v < kVectors; v++) {
      sum[v] = kernel.load(d, operand(0, at + v * kLanes), 0);
    }
    const int end = kOperands > 0 ? kOperands : operands;
    for (int k = 1; k < end; k++) {
      const Memory* from = operand(k, at);
      for (size_t v = 0; v < kVectors; v++) {
        sum[v] = kernel.fold(d, sum[v], kernel.load(d, from + v * kLanes, k));
      }
    }
    for (size_t v = 0; v < kVectors; v++) sum[v] = kernel.finish(d, sum[v]);
    for (size_t v = 0; v < kVectors; v++) {
      write<kStream>(d, sum[v], stream_out, out + at + v * kLanes);
    }
    if (also == nullptr) return;
    for (size_t v = 0; v < kVectors; v++) {
      write<kStream>(d, sum[v], stream_also, also + at + v * kLanes);
    }
  }

  template <bool kStream, class D, class V>
  HWY_INLINE void write(D d, const V& value, bool stream, Memory* to) const {
    if constexpr (kStream) {
      if (stream) return kernel.stream(d, value, to);
    }
    kernel.store(d, value, to);
  }

  // Fewer than 2 * kLanes elements.
  template <size_t kLanes, int kOperands>
  HWY_INLINE void tail(size_t at, size_t count) const {
    if (count & kLanes) {
      block<kLanes, 1, kOperands, false>(at);
      at += kLanes;
    }
    if constexpr (kLanes > 1) tail<kLanes / 2, kOperands>(at, count);
  }

  template <int kOperands>
  HWY_INLINE void elements(size_t at, size_t end) const {
    for (; end - at >= kBlock; at += kBlock) block<kFullLanes, kUnroll, kOperands, false>(at);
    for (; end - at >= kFullLanes; at += kFullLanes) block<kFullLanes, 1, kOperands, false>(at);
    if constexpr (kFullLanes > 1) {
      if (at != end) tail<kFullLanes / 2, kOperands>(at, end - at);
    }
  }
};

// Any number of operands. Out of line: one copy of its code a kernel.
template <class K>
HWY_NOINLINE void sweep_list(const Sweep<K>& sweep, size_t at, size_t end) {
  sweep.template elements<0>(at, end);
}

// Brings what is streamed to a cache line first, so that whole lines leave by non-temporal stores.
// Of two outputs that lie differently on their lines only `also` is streamed.
template <class K>
HWY_NOINLINE void sweep_streaming(Sweep<K> sweep, size_t count) {
  constexpr size_t kLine = 64;
  constexpr size_t kElement = sizeof(typename K::Memory);
  constexpr size_t kBlock = Sweep<K>::kBlock;
  const auto past = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % kLine; };
  if (sweep.stream_also && past(sweep.out) != past(sweep.also)) sweep.stream_out = false;
  const size_t past_line = past(sweep.stream_also ? sweep.also : sweep.out);
  const size_t head = past_line == 0 ? 0 : (kLine - past_line) / kElement;
  if (past_line % kElement != 0 || count < head + kBlock) {
    sweep_list(sweep, 0, count);
    return;
  }
  sweep_list(sweep, 0, head);
  size_t at = head;
  for (; count - at >= kBlock; at += kBlock) {
    sweep.template block<Sweep<K>::kFullLanes, Sweep<K>::kUnroll, 0, true>(at);
  }
  hwy::FlushStream();
  sweep_list(sweep, at, count);
}

// Two operands of a few elements, fewer than 2 * kLanes: without a Sweep, whose setting up would
// take longer.
template <class K, size_t kLanes>
HWY_INLINE void few_pairs(const K& kernel, const typename K::Memory* a, const typename K::Memory* b,
                          typename K::Memory* out, size_t count) {
  if (count & kLanes) {
    const hn::FixedTag<typename K::Lane, kLanes> d;
    kernel.store(d, kernel.finish(d, kernel.fold(d, kernel.load(d, a, 0), kernel.load(d, b, 1))),
                 out);
    a += kLanes, b += kLanes, out += kLanes;
  }
  if constexpr (kLanes > 1) few_pairs<K, kLanes / 2>(kernel, a, b, out, count);
}

template <class K>
void run(const ReduceArgs& args) {
  using Memory = typename K::Memory;
  const K kernel(args);
  const size_t count = args.count;
  if constexpr (K::kPairs && HWY_LANES(typename K::Lane) >= 2) {
    constexpr size_t kLanes = HWY_LANES(typename K::Lane);
    if (count < 2 * kLanes && args.operands == 2 && args.out != nullptr && args.also == nullptr) {
      few_pairs<K, kLanes>(kernel, static_cast<const Memory*>(args.in[0]),
                           static_cast<const Memory*>(args.in[1]), static_cast<Memory*>(args.out),
                           count);
      return;
    }
  }
  if (args.operands == 1 && kernel.copies_one()) {
    copy_operand(args, count * sizeof(Memory));
    return;
  }
  const bool has_out = args.out != nullptr;
  Sweep<K> sweep{kernel, static_cast<Memory*>(has_out ? args.out : args.also),
                 static_cast<Memory*>(has_out ? args.also : nullptr), args.in, args.operands};
  sweep.stream_out = has_out ? args.stream : args.stream_also;
  sweep.stream_also = args.stream_also && sweep.also != nullptr;
  if (sweep.stream_out || sweep.stream_also) {
    sweep_streaming(sweep, count);
    return;
  }
  if constexpr (K::kPairs) {
    if (args.operands == 2) {
      const void* const in[2] = {args.in[0], args.in[1]};  // a copy that stores cannot alias
      sweep.in = in;
      sweep.template elements<2>(0, count);
      return;
    }
  }
  sweep_list(sweep, 0, count);
}

// Shared by the floating-point kernels.
template <class D>
HWY_INLINE hn::Vec<D> canonical_nan(D d) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), kFloat32Nan));
  } else {
    return hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), kFloat64Nan));
  }
}

// The bits of a NaN depend on operand order and instruction set: one value stands for all.
template <class D, class V>
HWY_INLINE V with_one_nan(D d, V v) {
  return hn::IfThenElse(hn::IsNaN(v), canonical_nan(d), v);
}

struct FloatSum {
  static constexpr bool kPairs = true;
  explicit FloatSum(const ReduceArgs&) {}
  bool copies_one() const { return true; }
  template <class D, class V>
  HWY_INLINE V enter(D, V v, int) const {
    return v;
  }
  template <class D, class V>
  HWY_INLINE V fold(D, V a, V b) const {
    return hn::Add(a, b);
  }
  template <class D, class V>
  HWY_INLINE V finish(D d, V v) const {
    return with_one_nan(d, v);
  }
};

struct FloatProd : FloatSum {
  static constexpr bool kPairs = false;
  using FloatSum::FloatSum;
  template <class D, class V>
  HWY_INLINE V fold(D, V a, V b) const {
    return hn::Mul(a, b);
  }
};

// Sum, then times 1/n, where n is 1 for a partial result (an exact multiplication).
template <class Lane>
struct FloatAvg : FloatSum {
  explicit FloatAvg(const ReduceArgs& args)
      : FloatSum(args),
        partial(args.divide_by == 0),
        inverse(partial ? Lane{1} : Lane{1} / static_cast<Lane>(args.divide_by)) {}
  bool copies_one() const { return partial; }
  template <class D, class V>
  HWY_INLINE V finish(D d, V v) const {
    return with_one_nan(d, hn::Mul(v, hn::Set(d, inverse)));
  }
  bool partial;
  Lane inverse;
};

template <class Lane>
struct FloatPreMulSum : FloatSum {
  static constexpr bool kPairs = false;
  explicit FloatPreMulSum(const ReduceArgs& args)
      : FloatSum(args), prescale(args.prescale), scalar(static_cast<Lane>(args.scalar)) {}
  bool copies_one() const { return prescale == nullptr || prescale[0] == 0; }
  template <class D, class V>
  HWY_INLINE V enter(D d, V v, int operand) const {
    const bool scaled = prescale != nullptr && prescale[operand] != 0;
    return hn::Mul(v, hn::Set(d, scaled ? scalar : Lane{1}));
  }
  const uint8_t* prescale;
  Lane scalar;
};

// Equal operands differ at most in the sign of a zero: or gives -0 for the minimum, and +0 for the
// maximum. Both orders are needed, since x86 returns its second operand.
template <bool kMax>
struct FloatExtreme : FloatSum {
  static constexpr bool kPairs = false;
  using FloatSum::FloatSum;
  template <class D, class V>
  HWY_INLINE V fold(D d, V a, V b) const {
    const V extreme =
        kMax ? hn::And(hn::Max(a, b), hn::Max(b, a)) : hn::Or(hn::Min(a, b), hn::Min(b, a));
    return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), canonical_nan(d), extreme);
  }
};
#endif  // HWY_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace unisono::reduce
HWY_AFTER_NAMESPACE();
#endif  // UNISONO_COMM_REDUCE_SWEEP_INL_H_
