#include "bench/comm_bench/measure.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/comm_bench/launch.h"

namespace bench {
namespace {

Spread spread_of(std::vector<double> times) {
  Spread s;
  if (times.empty()) return s;
  std::sort(times.begin(), times.end());
  double sum = 0, squares = 0;
  for (const double t : times) sum += t;
  const double mean = sum / static_cast<double>(times.size());
  for (const double t : times) squares += (t - mean) * (t - mean);
  s.min = times.front();
  s.max = times.back();
  s.p99 = times[std::min(times.size() - 1, times.size() * 99 / 100)];
  s.cv = mean > 0 ? std::sqrt(squares / static_cast<double>(times.size())) / mean : 0;
  return s;
}

// One batch: mean time of a call. Calls are timed one by one where that is asked for or inputs are
// rewritten between.
double batch(const Options& options, const Ranks& ranks, WorkBuffers& buffers,
             const WorkBuffers::Case& c, uniStream_t stream, std::vector<double>* singles) {
  const bool one_by_one = options.per_iteration || options.cache == Cache::kRewrite;
  ranks.barrier();
  double total = 0;
  const double start = now_us();
  for (int i = 0; i < options.iterations; i++) {
    if (options.cache == Cache::kRewrite) {
      buffers.rewrite_input(c);
      ranks.barrier();
    }
    const double before = one_by_one ? now_us() : 0;
    buffers.issue(c, stream);
    if (options.barrier_each) ranks.barrier();
    if (!one_by_one) continue;
    if (stream != nullptr) must(uniStreamSynchronize(stream), "uniStreamSynchronize", ranks.comm);
    const double took = now_us() - before;
    total += took;
    singles->push_back(took);
  }
  if (stream != nullptr) must(uniStreamSynchronize(stream), "uniStreamSynchronize", ranks.comm);
  if (!one_by_one) total = now_us() - start;
  return total / options.iterations;
}

double over_ranks(const std::vector<double>& times, int how) {
  if (how == 0) return times.front();
  if (how == 2) return *std::min_element(times.begin(), times.end());
  if (how == 3) return *std::max_element(times.begin(), times.end());
  double sum = 0;
  for (const double t : times) sum += t;
  return sum / static_cast<double>(times.size());
}

}  // namespace

std::string last_algorithm(uniComm_t comm) {
  uniCommInfo_t info{};
  info.size = sizeof info;
  must(uniCommQuery(comm, &info), "uniCommQuery", comm);
  return info.last_algorithm;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double now_us() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

void Ranks::barrier() const {
  must(uniBarrier(comm, nullptr), "uniBarrier", comm);
}

double Ranks::combine(double value, int how) const {
  double result = value;
  if (how == 0) {
    must(uniBroadcast(&value, &result, 1, uniFloat64, 0, comm, nullptr), "uniBroadcast", comm);
    return result;
  }
  const uniRedOp_t ops[] = {uniSum, uniAvg, uniMin, uniMax};
  must(uniAllReduce(&value, &result, 1, uniFloat64, ops[how], comm, nullptr), "uniAllReduce", comm);
  return result;
}

size_t Ranks::sum(size_t value) const {
  uint64_t in = value, out = 0;
  must(uniAllReduce(&in, &out, 1, uniUint64, uniSum, comm, nullptr), "uniAllReduce", comm);
  return out;
}

std::vector<double> Ranks::everyone(double value) const {
  std::vector<double> all(static_cast<size_t>(ranks));
  must(uniAllGather(&value, all.data(), 1, uniFloat64, comm, nullptr), "uniAllGather", comm);
  return all;
}

Timing time_case(const Options& options, const Ranks& ranks, WorkBuffers& buffers,
                 const WorkBuffers::Case& c, uniStream_t stream) {
  Timing timing;
  buffers.fill_inputs(c);
  for (int i = 0; i < options.warmup; i++) buffers.issue(c, stream);
  if (stream != nullptr) must(uniStreamSynchronize(stream), "uniStreamSynchronize", ranks.comm);
  std::vector<double> singles;
  std::vector<std::vector<double>> of_rank(static_cast<size_t>(ranks.ranks));
  for (int b = 0; b < options.batches; b++) {
    const std::vector<double> times =
        ranks.everyone(batch(options, ranks, buffers, c, stream, &singles));
    timing.batches.push_back(over_ranks(times, options.average));
    for (size_t r = 0; r < times.size(); r++) of_rank[r].push_back(times[r]);
  }
  timing.us = median(timing.batches);
  for (const std::vector<double>& times : of_rank) timing.rank_us.push_back(median(times));
  timing.spread = spread_of(std::move(singles));
  if (options.check == 0) return timing;
  // One call on fresh values, since an in-place call changes its own input.
  buffers.fill_inputs(c);
  ranks.barrier();
  buffers.issue(c, stream);
  if (stream != nullptr) must(uniStreamSynchronize(stream), "uniStreamSynchronize", ranks.comm);
  timing.wrong = ranks.sum(buffers.wrong(c));
  timing.checked = true;
  return timing;
}

}  // namespace bench
