// versus-experiment: our all-reduce beside the smallest program that is as fast as we know how:
// float32 sum over shared memory, private buffers, pinned processes. Batches alternate in the same
// processes (A B A B), so that the cores' mood is the same for both; the flag latency before and
// after each size says what mood it was.
//
//   versus-experiment RANKS [SLICE_KIB=256]      prints size, experiment us, ours us, ratio (ours /
//   experiment)
//
// The experiment: up to 4 KiB everyone writes its input beside a flag and folds all inputs in rank
// order; above that, rounds of copy in | reduce own slice over all inputs | copy out, through slots
// that rotate within an arena larger than L2.
#include <immintrin.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "unisono/unisono.h"

namespace {

constexpr int kRanksMax = 16;
constexpr size_t kEagerBytes = 4096, kEagerSlots = 64, kRounds = 4, kStreamBytes = size_t{16} << 20;
constexpr int kBatches = 9;

struct alignas(64) Counter {
  std::atomic<uint64_t> value;
};
struct alignas(64) EagerSlot {
  std::atomic<uint64_t> sequence;
  char inline_data[56];
  char data[kEagerBytes];
};
struct Shared {
  Counter copied_in[kRanksMax], reduced[kRanksMax], copied_out[kRanksMax], barrier[kRanksMax];
  double times[kRanksMax];
  EagerSlot eager[kRanksMax][kEagerSlots];
};

class Experiment {
 public:
  Experiment(int ranks, size_t slice_bytes)
      : ranks_(ranks),
        slice_max_(slice_bytes),
        shared_(static_cast<Shared*>(map(sizeof(Shared)))),
        arena_(static_cast<char*>(map(static_cast<size_t>(ranks) * kRounds *
                                      (static_cast<size_t>(ranks) + 1) * slice_bytes))) {}

  void set_rank(int rank) { rank_ = rank; }

  void all_reduce(const float* in, float* out, size_t bytes) {
    if (bytes <= kEagerBytes) {
      eager(in, out, bytes);
    } else {
      direct(reinterpret_cast<const char*>(in), reinterpret_cast<char*>(out), bytes);
    }
  }

  void barrier() {
    shared_->barrier[rank_].value.store(++barriers_, std::memory_order_release);
    for (int r = 0; r < ranks_; r++) wait_for(shared_->barrier[r].value, barriers_);
  }

  double longest(double time) {
    shared_->times[rank_] = time;
    barrier();
    const double result = *std::max_element(shared_->times, shared_->times + ranks_);
    barrier();
    return result;
  }

  // One-way latency of a flag between ranks 0 and 1, microseconds.
  double flag_us() {
    constexpr int kTurns = 4000;
    barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kTurns && rank_ < 2; i++) {
      std::atomic<uint64_t>&mine = flags(rank_), &other = flags(1 - rank_);
      if (rank_ == 0) mine.store(flag_turn_ + 1, std::memory_order_release);
      wait_for(other, flag_turn_ + 1);
      if (rank_ == 1) mine.store(flag_turn_ + 1, std::memory_order_release);
      flag_turn_++;
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    return longest(took.count() / (2.0 * kTurns));
  }

 private:
  static void* map(size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) perror("mmap"), exit(1);
    return at;
  }
  std::atomic<uint64_t>& flags(int rank) { return shared_->barrier[kRanksMax - 1 - rank].value; }

  void wait_for(std::atomic<uint64_t>& counter, uint64_t value) const {
    const int spins = ranks_ > 2 ? 50 : 2000;  // two cores: yield early when ranks outnumber them
    for (int n = 0; counter.load(std::memory_order_acquire) < value;) {
      if (++n > spins) {
        sched_yield();
      } else {
        _mm_pause();
      }
    }
  }
  char* slot(int owner, uint64_t round, int index) const {
    const auto n = static_cast<uint64_t>(ranks_);
    return arena_ +
           (static_cast<uint64_t>(owner) * kRounds + round % kRounds) * (n + 1) * slice_max_ +
           static_cast<uint64_t>(index) * slice_max_;
  }
  static void copy_streaming(char* to, const char* from, size_t bytes) {
    size_t i = 0;
    for (; i + 32 <= bytes; i += 32) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
    }
    std::memcpy(to + i, from + i, bytes - i);
  }
  void reduce(float* out, float* also, const float* const* in, size_t count, bool stream) const {
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
      __m256 sum = _mm256_loadu_ps(in[0] + i);
      for (int r = 1; r < ranks_; r++) sum = _mm256_add_ps(sum, _mm256_loadu_ps(in[r] + i));
      if (stream) {
        _mm256_stream_ps(out + i, sum);
      } else {
        _mm256_storeu_ps(out + i, sum);
      }
      if (also != nullptr) _mm256_storeu_ps(also + i, sum);
    }
    for (; i < count; i++) {
      float sum = in[0][i];
      for (int r = 1; r < ranks_; r++) sum += in[r][i];
      out[i] = sum;
      if (also != nullptr) also[i] = sum;
    }
  }

  void eager(const float* in, float* out, size_t bytes) {
    const uint64_t sequence = ++eager_sequence_;
    const auto payload = [&](int r) {
      EagerSlot& s = shared_->eager[r][sequence % kEagerSlots];
      return bytes <= sizeof s.inline_data ? s.inline_data : s.data;
    };
    std::memcpy(payload(rank_), in, bytes);
    shared_->eager[rank_][sequence % kEagerSlots].sequence.store(sequence,
                                                                 std::memory_order_release);
    const float* inputs[kRanksMax];
    for (int r = 0; r < ranks_; r++) {
      if (r != rank_) wait_for(shared_->eager[r][sequence % kEagerSlots].sequence, sequence);
      inputs[r] = r == rank_ ? in : reinterpret_cast<const float*>(payload(r));
    }
    reduce(out, nullptr, inputs, bytes / 4, false);
  }

  struct Range {
    size_t offset, bytes;
  };
  struct Job {
    const char* in;
    char* out;
    size_t bytes, slice, shift;
    uint64_t first;
    bool stream;
  };
  Range range(const Job& job, uint64_t k, int owner) const {
    const size_t offset =
        (k * static_cast<uint64_t>(ranks_) + static_cast<uint64_t>(owner)) * job.slice;
    return {offset, offset >= job.bytes ? 0 : std::min(job.slice, job.bytes - offset)};
  }
  void copy_in(const Job& job, uint64_t k) {
    const uint64_t round = job.first + k;
    for (int r = 0; r < ranks_ && round >= kRounds; r++) {
      if (r == rank_) continue;
      wait_for(shared_->reduced[r].value, round - kRounds + 1);
      wait_for(shared_->copied_out[r].value, round - kRounds + 1);
    }
    for (int step = 1; step < ranks_; step++) {
      const int owner = (rank_ + step) % ranks_;
      const Range g = range(job, k, owner);
      std::memcpy(slot(rank_, round, owner) + job.shift, job.in + g.offset, g.bytes);
    }
    shared_->copied_in[rank_].value.store(round + 1, std::memory_order_release);
  }
  void reduce_mine(const Job& job, uint64_t k) {
    const uint64_t round = job.first + k;
    const Range g = range(job, k, rank_);
    const float* inputs[kRanksMax];
    for (int r = 0; r < ranks_; r++) {
      if (r != rank_) wait_for(shared_->copied_in[r].value, round + 1);
      inputs[r] = reinterpret_cast<const float*>(r == rank_ ? job.in + g.offset
                                                            : slot(r, round, rank_) + job.shift);
    }
    reduce(reinterpret_cast<float*>(job.out + g.offset),
           reinterpret_cast<float*>(slot(rank_, round, ranks_) + job.shift), inputs, g.bytes / 4,
           job.stream);
    if (job.stream) _mm_sfence();
    shared_->reduced[rank_].value.store(round + 1, std::memory_order_release);
  }
  void copy_out(const Job& job, uint64_t k) {
    const uint64_t round = job.first + k;
    for (int step = 1; step < ranks_; step++) {
      const int owner = (rank_ + step) % ranks_;
      const Range g = range(job, k, owner);
      wait_for(shared_->reduced[owner].value, round + 1);
      const char* from = slot(owner, round, ranks_) + job.shift;
      if (job.stream) {
        copy_streaming(job.out + g.offset, from, g.bytes);
      } else {
        std::memcpy(job.out + g.offset, from, g.bytes);
      }
    }
    shared_->copied_out[rank_].value.store(round + 1, std::memory_order_release);
  }
  void direct(const char* in, char* out, size_t bytes) {
    const auto n = static_cast<uint64_t>(ranks_);
    Job job{in, out, bytes, 0, 0, round_base_, bytes >= kStreamBytes};
    job.slice = std::min(slice_max_, ((bytes + n - 1) / n + 63) & ~size_t{63});
    const uint64_t rounds = (bytes + n * job.slice - 1) / (n * job.slice);
    round_base_ += rounds;
    if (rounds == 1) job.shift = (job.first / kRounds) % (slice_max_ / job.slice) * job.slice;
    copy_in(job, 0);
    for (uint64_t k = 0; k < rounds; k++) {
      if (k + 1 < rounds) copy_in(job, k + 1);
      reduce_mine(job, k);
      if (k > 0) copy_out(job, k - 1);
    }
    copy_out(job, rounds - 1);
  }

  int ranks_, rank_ = 0;
  size_t slice_max_;
  Shared* shared_;
  char* arena_;
  uint64_t round_base_ = 0, eager_sequence_ = 0, barriers_ = 0, flag_turn_ = 0;
};

void must(uniResult_t result) {
  if (result == uniSuccess) return;
  std::fprintf(stderr, "versus-experiment: %s\n", uniGetLastError(nullptr));
  _exit(3);
}

template <class Body>
double batch_us(Experiment& experiment, int calls, const Body& body) {
  experiment.barrier();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; i++) body();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return experiment.longest(took.count() / calls);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run_rank(Experiment& experiment, int ranks, int rank, uniComm_t comm) {
  const size_t most = size_t{64} << 20;
  auto* in = static_cast<float*>(std::aligned_alloc(4096, most));
  auto* out = static_cast<float*>(std::aligned_alloc(4096, most));
  for (size_t i = 0; i < most / 4; i++)
    in[i] = static_cast<float>(rank + 1 + static_cast<int>(i % 7)), out[i] = 0;
  const char* limit_text = std::getenv("VERSUS_MAX_BYTES");
  const size_t limit = limit_text == nullptr ? most : static_cast<size_t>(std::atoll(limit_text));
  if (rank == 0)
    std::printf(
        "# ranks %d\n#     size  experiment_us     ours_us  ratio  flag_us before/after  wrong\n",
        ranks);
  for (size_t bytes = 8; bytes <= limit; bytes *= bytes < 64 ? 8 : 4) {
    int calls = bytes <= 8192 ? 20000 : bytes <= (1u << 20) ? 500 : bytes <= (16u << 20) ? 20 : 3;
    if (ranks > 2) calls = std::max(3, calls / 10);
    const double before = experiment.flag_us();
    std::vector<double> theirs, ours, ratios;
    for (int b = 0; b < kBatches; b++) {
      theirs.push_back(batch_us(experiment, calls, [&] { experiment.all_reduce(in, out, bytes); }));
      ours.push_back(batch_us(experiment, calls, [&] {
        must(uniAllReduce(in, out, bytes / 4, uniFloat32, uniSum, comm, nullptr));
      }));
      ratios.push_back(ours.back() / theirs.back());
    }
    const double after = experiment.flag_us();
    size_t wrong = 0;
    for (size_t i = 0; i < bytes / 4; i++) {
      wrong +=
          out[i] != static_cast<float>(ranks * (ranks + 1) / 2 + ranks * static_cast<int>(i % 7));
    }
    if (rank == 0) {
      std::printf("%10zu %14.3f %11.3f %6.2f  %.3f/%.3f  %zu\n", bytes, median(theirs),
                  median(ours), median(ratios), before, after, wrong);
      std::fflush(stdout);
    }
  }
  std::free(in);
  std::free(out);
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  if (ranks < 2 || ranks > kRanksMax - 2)
    return std::fprintf(stderr, "usage: versus-experiment RANKS(2-14) [SLICE_KIB]\n"), 2;
  Experiment experiment(ranks, static_cast<size_t>(argc > 2 ? std::atoi(argv[2]) : 256) * 1024);
  int id_pipe[2];
  if (pipe(id_pipe) != 0) return perror("pipe"), 1;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  for (int rank = 0; rank < ranks; rank++) {
    if (fork() != 0) continue;
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(static_cast<size_t>(rank % cores), &cpu);
    sched_setaffinity(0, sizeof cpu, &cpu);
    experiment.set_rank(rank);
    uniUniqueId id;
    if (rank == 0) {
      must(uniGetUniqueId(&id));
      for (int r = 1; r < ranks; r++) {
        if (write(id_pipe[1], &id, sizeof id) != static_cast<ssize_t>(sizeof id)) _exit(1);
      }
    } else if (read(id_pipe[0], &id, sizeof id) != static_cast<ssize_t>(sizeof id)) {
      _exit(1);
    }
    uniConfig_t config = UNI_CONFIG_INITIALIZER;
    config.transports = "shm";
    uniComm_t comm = nullptr;
    must(uniCommInitRankConfig(&comm, ranks, id, rank, &config));
    run_rank(experiment, ranks, rank, comm);
    must(uniCommDestroy(comm));
    _exit(0);
  }
  int status = 0, worst = 0;
  while (wait(&status) > 0) worst = std::max(worst, status != 0 ? 1 : 0);
  return worst;
}
