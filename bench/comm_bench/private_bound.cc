#include "bench/comm_bench/private_bound.h"

#include <sched.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bench/comm_bench/vector_loop.h"

namespace bench {
namespace {

constexpr size_t kSmallBytes = 4096;
constexpr size_t kSliceBytes = size_t{128} << 10;
constexpr size_t kArenaBytes[] = {size_t{256} << 10, size_t{1} << 20,
                                  size_t{4} << 20};  // of a rank
constexpr size_t kArenaMost = size_t{4} << 20;
constexpr size_t kDataAt = size_t{2} << 20;  // behind what bounds.cc uses for its flags
constexpr int kBatches = 7;

struct alignas(128) Line {
  std::atomic<uint64_t> value;
};
BENCH_EVERY_TARGET void add(float* out, const float* a, const float* b, size_t count) {
  BENCH_VECTOR_LOOP
  for (size_t i = 0; i < count; i++) out[i] = a[i] + b[i];
}

BENCH_EVERY_TARGET void add_to_two(float* out, float* also, const float* a, const float* b,
                                   size_t count) {
  BENCH_VECTOR_LOOP
  for (size_t i = 0; i < count; i++) also[i] = out[i] = a[i] + b[i];
}

// Slots may be written past the caches: where the cores are far apart the detour over memory is
// shorter than from one cache to the other. Each loop ends at a multiple of a vector; callers do
// the rest.
constexpr size_t kVector = 4;
size_t stream(float* to, const float* from, size_t count) {
  size_t i = 0;
#if defined(__x86_64__)
  for (; i + kVector <= count; i += kVector) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
  _mm_sfence();
#endif
  return i;
}

size_t add_streaming(float* out, float* also, const float* a, const float* b, size_t count) {
  size_t i = 0;
#if defined(__x86_64__)
  for (; i + kVector <= count; i += kVector) {
    const __m128 sum = _mm_add_ps(_mm_loadu_ps(a + i), _mm_loadu_ps(b + i));
    _mm_storeu_ps(out + i, sum);
    _mm_stream_ps(also + i, sum);
  }
  _mm_sfence();
#endif
  return i;
}

void await(const std::atomic<uint64_t>& flag, uint64_t value) {
  for (int turn = 0; flag.load(std::memory_order_acquire) < value; turn++) {
    if (turn > 2000) {
      sched_yield();
    } else {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  }
}

class PrivateAllReduce {
 public:
  PrivateAllReduce(const Shared& shared, const Ranks& ranks, size_t count, bool in_place,
                   size_t arena_bytes, bool streaming)
      : ranks_(static_cast<size_t>(ranks.ranks)),
        self_(static_cast<size_t>(ranks.rank)),
        count_(count),
        arena_bytes_(arena_bytes),
        streaming_(streaming),
        // Three rounds fit: no rank is two behind.
        slice_floats_(std::min(kSliceBytes, arena_bytes / (4 * (ranks_ + 1))) / sizeof(float)),
        base_(static_cast<char*>(shared.memory) + kDataAt),
        output_(count, 2),
        input_(in_place ? 0 : count, 1),
        in_(in_place ? output_.data() : input_.data()) {}

  static size_t bytes_needed(size_t ranks) { return kDataAt + ranks * kRankBytes; }

  // Before the first call, between two barriers.
  void reset() { std::memset(base_ + self_ * kRankBytes, 0, kRankBytes); }

  void call() {
    if (count_ * sizeof(float) <= kSmallBytes) {
      small_call();
      return;
    }
    const size_t round_floats = ranks_ * slice_floats_;
    for (size_t at = 0; at < count_; at += round_floats) {
      one_round(at, std::min(round_floats, count_ - at));
    }
  }

 private:
  static constexpr size_t kRankBytes = sizeof(Line) + kArenaMost;

  Line& line(size_t rank) const { return *reinterpret_cast<Line*>(base_ + rank * kRankBytes); }
  // Slots of all ranks at the same place, behind those of the call or round before; a line is
  // written again when the arena is through, and then no rank is as far back as that.
  size_t take(size_t bytes) {
    bytes = (bytes + sizeof(Line) - 1) / sizeof(Line) * sizeof(Line);
    if (next_ + bytes > arena_bytes_) next_ = 0;
    const size_t place = next_;
    next_ += bytes;
    return place;
  }
  char* at(size_t rank, size_t place) const {
    return base_ + rank * kRankBytes + sizeof(Line) + place;
  }

  void meet() {
    line(self_).value.store(++met_, std::memory_order_release);
    for (size_t r = 0; r < ranks_; r++) await(line(r).value, met_);
  }

  // out = the sum of mine and what `from` gives for each other rank; the first two at once.
  template <class From>
  void sum(float* out, float* also, const float* mine, size_t count, const From& from) {
    size_t left = ranks_ - 1;
    const float* so_far = mine;
    for (size_t r = 0; r < ranks_; r++) {
      if (r == self_) continue;
      if (--left == 0 && also != nullptr) {
        const float* last = from(r);
        const size_t done = streaming_ ? add_streaming(out, also, so_far, last, count) : 0;
        add_to_two(out + done, also + done, so_far + done, last + done, count - done);
      } else {
        add(out, so_far, from(r), count);
      }
      so_far = out;
    }
  }

  // A flag and the input, side by side.
  void small_call() {
    const uint64_t call = ++small_calls_;
    const size_t place = take(sizeof(uint64_t) + count_ * sizeof(float));
    const auto flag = [&](size_t rank) {
      return reinterpret_cast<std::atomic<uint64_t>*>(at(rank, place));
    };
    const auto data = [&](size_t rank) { return reinterpret_cast<float*>(flag(rank) + 1); };
    std::memcpy(data(self_), in_, count_ * sizeof(float));
    flag(self_)->store(call, std::memory_order_release);
    for (size_t r = 0; r < ranks_; r++) await(*flag(r), call);
    sum(output_.data(), nullptr, data(self_), count_, data);
  }

  void one_round(size_t first, size_t floats) {
    const auto begin = [&](size_t rank) { return first + floats * rank / ranks_; };
    const auto size = [&](size_t rank) { return begin(rank + 1) - begin(rank); };
    const size_t stride = (floats / ranks_ * sizeof(float) / sizeof(Line) + 1) * sizeof(Line);
    const size_t place = take((ranks_ + 1) * stride);
    // At `rank`: what it gives to `to`, or, with to == ranks, its sums.
    const auto slot = [&](size_t rank, size_t to) {
      return reinterpret_cast<float*>(at(rank, place) + to * stride);
    };
    for (size_t to = 0; to < ranks_; to++) {
      if (to == self_) continue;
      float* const out = slot(self_, to);
      const float* const mine = in_ + begin(to);
      const size_t done = streaming_ ? stream(out, mine, size(to)) : 0;
      std::memcpy(out + done, mine + done, (size(to) - done) * sizeof(float));
    }
    meet();
    sum(output_.data() + begin(self_), slot(self_, ranks_), in_ + begin(self_), size(self_),
        [&](size_t r) { return slot(r, self_); });
    meet();
    for (size_t from = 0; from < ranks_; from++) {
      if (from == self_) continue;
      std::memcpy(output_.data() + begin(from), slot(from, ranks_), size(from) * sizeof(float));
    }
  }

  const size_t ranks_, self_, count_, arena_bytes_;
  const bool streaming_;
  const size_t slice_floats_;
  char* const base_;
  std::vector<float> output_, input_;
  const float* const in_;
  uint64_t met_ = 0, small_calls_ = 0;
  size_t next_ = 0;
};

double time_calls(const Ranks& ranks, PrivateAllReduce& all_reduce, size_t bytes) {
  ranks.barrier();
  all_reduce.reset();
  ranks.barrier();
  const int calls = bytes <= kSmallBytes ? 4000 : bytes <= (size_t{1} << 20) ? 100 : 4;
  std::vector<double> times;
  for (int batch = 0; batch <= kBatches; batch++) {
    ranks.barrier();
    const double start = now_us();
    for (int call = 0; call < calls; call++) all_reduce.call();
    // The first batch touches fresh memory.
    if (batch > 0) times.push_back((now_us() - start) / calls);
  }
  return ranks.combine(median(times), 3);
}

}  // namespace

double private_bound_us(const Shared& shared, const Ranks& ranks, size_t count, bool in_place) {
  const auto n = static_cast<size_t>(ranks.ranks);
  if (shared.memory == nullptr || shared.bytes < PrivateAllReduce::bytes_needed(n)) return 0;
  if (n < 2 || count == 0) return 0;
  double least = 0;
  for (const size_t arena_bytes : kArenaBytes) {
    for (const bool streaming : {false, true}) {
      PrivateAllReduce all_reduce(shared, ranks, count, in_place, arena_bytes, streaming);
      const double us = time_calls(ranks, all_reduce, count * sizeof(float));
      least = least == 0 ? us : std::min(least, us);
    }
  }
  return least;
}

}  // namespace bench
