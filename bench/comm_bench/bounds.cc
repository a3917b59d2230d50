#include "bench/comm_bench/bounds.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "bench/comm_bench/vector_loop.h"

namespace bench {
namespace {

struct alignas(128) Line {
  std::atomic<uint64_t> value;
};

// The first page of the shared mapping holds one line a rank; data lies behind it.
constexpr size_t kDataAt = size_t{1} << 20;
constexpr int kFlagRounds = 20000;

void pause_turn(int turn) {
  if (turn > 2000) {
    sched_yield();
  } else {
    __builtin_ia32_pause();
  }
}

void await(const Line& line, uint64_t value) {
  for (int turn = 0; line.value.load(std::memory_order_acquire) < value; turn++) pause_turn(turn);
}

void meet(Line* lines, const Ranks& ranks, uint64_t step) {
  lines[ranks.rank].value.store(step, std::memory_order_release);
  for (int r = 0; r < ranks.ranks; r++) await(lines[r], step);
}

// Two ranks: a loop that becomes vectors.
BENCH_EVERY_TARGET void add_two(const float* a, const float* b, float* out, float* also,
                                size_t count) {
  BENCH_VECTOR_LOOP
  for (size_t i = 0; i < count; i++) also[i] = out[i] = a[i] + b[i];
}

void add_all(float* data, int ranks, size_t stride, size_t begin, size_t end) {
  float* out = data + static_cast<size_t>(ranks) * stride;
  if (ranks == 2) {
    add_two(data + begin, data + stride + begin, out + begin, out + stride + begin, end - begin);
    return;
  }
  for (size_t i = begin; i < end; i++) {
    float sum = data[i];
    for (int r = 1; r < ranks; r++) sum += data[static_cast<size_t>(r) * stride + i];
    for (int r = 0; r < ranks; r++) out[static_cast<size_t>(r) * stride + i] = sum;
  }
}

double all_reduce_bound(const Shared& shared, const Ranks& ranks, size_t count) {
  const auto n = static_cast<size_t>(ranks.ranks), self = static_cast<size_t>(ranks.rank);
  const size_t stride = (count + 1023) / 1024 * 1024;
  auto* lines = reinterpret_cast<Line*>(static_cast<char*>(shared.memory) + kDataAt / 2);
  auto* data = reinterpret_cast<float*>(static_cast<char*>(shared.memory) + kDataAt);
  ranks.barrier();
  lines[ranks.rank].value = 0;
  ranks.barrier();
  std::vector<double> times;
  uint64_t step = 0;
  for (int call = 0; call < 7; call++) {
    for (size_t i = 0; i < count; i++) data[self * stride + i] = static_cast<float>(i % 7 + self);
    meet(lines, ranks, ++step);
    const double start = now_us();
    meet(lines, ranks, ++step);
    add_all(data, ranks.ranks, stride, count * self / n, count * (self + 1) / n);
    meet(lines, ranks, ++step);
    times.push_back(now_us() - start);
  }
  std::sort(times.begin(), times.end());
  return ranks.combine(times[times.size() / 2], 3);
}

double copy_bound(const Ranks& ranks, size_t bytes) {
  std::vector<char> from(bytes, 1), to(bytes, 2);
  std::vector<double> times;
  ranks.barrier();
  for (int call = 0; call < 7; call++) {
    const double start = now_us();
    std::memcpy(to.data(), from.data(), bytes);
    asm volatile("" : : "r"(to.data()) : "memory");
    times.push_back(now_us() - start);
  }
  std::sort(times.begin(), times.end());
  return ranks.combine(times[times.size() / 2], 3);
}

}  // namespace

double flag_latency_us(const Shared& shared, const Ranks& ranks) {
  if (shared.memory == nullptr || shared.bytes == 0 || ranks.ranks < 2) return 0;
  auto* lines = static_cast<Line*>(shared.memory);
  double us = 0;
  ranks.barrier();
  if (ranks.rank < 2) lines[ranks.rank].value = 0;
  ranks.barrier();
  const double start = now_us();
  for (uint64_t k = 1; k <= kFlagRounds && ranks.rank < 2; k++) {
    if (ranks.rank == 0) {
      lines[0].value.store(k, std::memory_order_release);
      await(lines[1], k);
    } else {
      await(lines[0], k);
      lines[1].value.store(k, std::memory_order_release);
    }
  }
  us = (now_us() - start) / (2.0 * kFlagRounds);
  return ranks.combine(us, 0);
}

double bound_us(const Options& options, const Shared& shared, const Ranks& ranks,
                const Sizes& sizes, size_t type_bytes) {
  const size_t bytes = sizes.count * type_bytes;
  const size_t needed = kDataAt + 2 * static_cast<size_t>(ranks.ranks) * (bytes + 4096);
  if (options.work == Work::kAllReduce && shared.bytes >= needed && type_bytes == 4) {
    return all_reduce_bound(shared, ranks, sizes.count);
  }
  return copy_bound(ranks, sizes.recv_elements * type_bytes);
}

}  // namespace bench
