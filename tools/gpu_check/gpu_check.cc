// gpu-check-run: collectives through NCCL and copies to and from the device, checked and timed on
// the GPUs of this machine. Prints Markdown. Exits with 1 if anything is wrong.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "unisono/unisono.h"

namespace {

constexpr size_t kCopyBytes = size_t{256} << 20;
constexpr int kRounds = 20;
std::mutex output;
int failures = 0;

void fail(const std::string& words) {
  const std::lock_guard lock(output);
  failures++;
  fmt::print("| wrong | {} | | |\n", words);
}

bool cuda_ok(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return true;
  fail(fmt::format("{}: {}", what, cudaGetErrorString(result)));
  return false;
}

bool uni_ok(uniResult_t result, const char* what) {
  if (result == uniSuccess) return true;
  fail(fmt::format("{}: {}", what, uniGetLastError(nullptr)));
  return false;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void print_copy(const char* name, double seconds) {
  const double gigabytes = static_cast<double>(kCopyBytes) * kRounds / seconds / 1e9;
  fmt::print("| copy | {} | 256 MiB | {:.1f} GB/s |\n", name, gigabytes);
}

// Each direction by itself.
void copies() {
  void *device = nullptr, *pinned = nullptr;
  std::vector<char> pageable(kCopyBytes, 1);
  if (!cuda_ok(cudaMalloc(&device, kCopyBytes), "cudaMalloc")) return;
  if (!cuda_ok(cudaMallocHost(&pinned, kCopyBytes), "cudaMallocHost")) return;
  struct Way {
    const char* name;
    void *to, *from;
    cudaMemcpyKind kind;
  };
  const Way ways[] = {
      {"pinned host to device", device, pinned, cudaMemcpyHostToDevice},
      {"device to pinned host", pinned, device, cudaMemcpyDeviceToHost},
      {"pageable host to device", device, pageable.data(), cudaMemcpyHostToDevice},
      {"device to pageable host", pageable.data(), device, cudaMemcpyDeviceToHost},
  };
  for (const Way& way : ways) {
    (void)cuda_ok(cudaMemcpy(way.to, way.from, kCopyBytes, way.kind), way.name);  // warm
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kRounds; i++) {
      (void)cuda_ok(cudaMemcpy(way.to, way.from, kCopyBytes, way.kind), way.name);
    }
    print_copy(way.name, seconds_since(start));
  }
  (void)cudaFreeHost(pinned);
  (void)cudaFree(device);
}

// One rank, in a thread of its own.
class Rank {
 public:
  Rank(int rank, int ranks, uniComm_t comm) : rank_(rank), ranks_(ranks), comm_(comm) {}

  void run() {
    if (!cuda_ok(cudaSetDevice(rank_), "cudaSetDevice")) return;
    if (!cuda_ok(cudaStreamCreate(&cuda_), "cudaStreamCreate")) return;
    if (!uni_ok(uniStreamWrapCuda(&stream_, cuda_), "uniStreamWrapCuda")) return;
    check_collectives();
    for (size_t bytes = 1024; bytes <= kCopyBytes; bytes *= 64) time_all_reduce(bytes);
    (void)uni_ok(uniStreamDestroy(stream_), "uniStreamDestroy");
    (void)cuda_ok(cudaStreamDestroy(cuda_), "cudaStreamDestroy");
  }

 private:
  using Call = uniResult_t (*)(const Rank&, float* send, float* recv);
  // What rank r holds at i: small, so that sums are exact.
  static float input(int r, size_t i) {
    return static_cast<float>((i * 3 + static_cast<size_t>(r)) % 17);
  }

  void check(const char* name, Call call, size_t out, float (*want)(const Rank&, size_t)) {
    const size_t most = kCount * static_cast<size_t>(ranks_);
    float* device = nullptr;
    if (!cuda_ok(cudaMalloc(reinterpret_cast<void**>(&device), 2 * most * sizeof(float)), name)) {
      return;
    }
    std::vector<float> host(2 * most, -1);
    for (size_t i = 0; i < most; i++) host[i] = input(rank_, i);
    const size_t bytes = host.size() * sizeof(float);
    (void)cuda_ok(cudaMemcpy(device, host.data(), bytes, cudaMemcpyHostToDevice), name);
    const bool well = uni_ok(call(*this, device, device + most), name) &&
                      uni_ok(uniStreamSynchronize(stream_), name) &&
                      cuda_ok(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost), name);
    (void)cudaFree(device);
    for (size_t i = 0; well && i < out; i++) {
      if (host[most + i] == want(*this, i)) continue;
      fail(fmt::format("{} of {} ranks, rank {}, element {}: {}", name, ranks_, rank_, i,
                       host[most + i]));
      return;
    }
  }

  static float sum_at(const Rank& self, size_t i) {
    float sum = 0;
    for (int r = 0; r < self.ranks_; r++) sum += input(r, i);
    return sum;
  }
  static float mine_of_sum(const Rank& self, size_t i) {
    return sum_at(self, static_cast<size_t>(self.rank_) * kCount + i);
  }
  static float of_last(const Rank& self, size_t i) { return input(self.ranks_ - 1, i); }
  static float mine_of_last(const Rank& self, size_t i) {
    return input(self.ranks_ - 1, static_cast<size_t>(self.rank_) * kCount + i);
  }
  static float of_each(const Rank&, size_t i) {
    return input(static_cast<int>(i / kCount), i % kCount);
  }
  static float for_me_of_each(const Rank& self, size_t i) {
    return input(static_cast<int>(i / kCount),
                 static_cast<size_t>(self.rank_) * kCount + i % kCount);
  }
  static float of_the_one_before(const Rank& self, size_t i) {
    return input((self.rank_ + self.ranks_ - 1) % self.ranks_, i);
  }

  static uniResult_t exchange(const Rank& self, float* send, float* recv) {
    const int next = (self.rank_ + 1) % self.ranks_;
    const int before = (self.rank_ + self.ranks_ - 1) % self.ranks_;
    (void)uniGroupStart();
    const uniResult_t sent = uniSend(send, kCount, uniFloat32, next, self.comm_, self.stream_);
    (void)uniRecv(recv, kCount, uniFloat32, before, self.comm_, self.stream_);
    const uniResult_t ended = uniGroupEnd();
    return sent == uniSuccess ? ended : sent;
  }

  void check_collectives() {
    const size_t all = kCount * static_cast<size_t>(ranks_);
    const int last = ranks_ - 1;
    const bool is_last = rank_ == last;
#define CALL(name, ...)                                                                \
  [](const Rank& self, float* send, float* recv) {                                     \
    const int root = self.ranks_ - 1;                                                  \
    (void)root;                                                                        \
    return name(send, recv, kCount, uniFloat32, __VA_ARGS__ self.comm_, self.stream_); \
  }
#define COMMA ,
    check("all_reduce", CALL(uniAllReduce, uniSum COMMA), kCount, sum_at);
    check("reduce", CALL(uniReduce, uniSum COMMA root COMMA), is_last ? kCount : 0, sum_at);
    check("broadcast", CALL(uniBroadcast, root COMMA), kCount, of_last);
    check("all_gather", CALL(uniAllGather, ), all, of_each);
    check("reduce_scatter", CALL(uniReduceScatter, uniSum COMMA), kCount, mine_of_sum);
    check("gather", CALL(uniGather, root COMMA), is_last ? all : 0, of_each);
    check("scatter", CALL(uniScatter, root COMMA), kCount, mine_of_last);
    check("all_to_all", CALL(uniAllToAll, ), all, for_me_of_each);
#undef CALL
#undef COMMA
    check("send and recv", exchange, kCount, of_the_one_before);
  }

  void time_all_reduce(size_t bytes) {
    void* buffer = nullptr;
    if (!cuda_ok(cudaMalloc(&buffer, bytes), "cudaMalloc")) return;
    (void)cuda_ok(cudaMemset(buffer, 0, bytes), "cudaMemset");
    const auto rounds = [&] {
      for (int i = 0; i < kRounds; i++) {
        (void)uni_ok(uniAllReduce(buffer, buffer, bytes / 4, uniFloat32, uniSum, comm_, stream_),
                     "uniAllReduce");
      }
      (void)uni_ok(uniStreamSynchronize(stream_), "uniStreamSynchronize");
    };
    rounds();
    const auto start = std::chrono::steady_clock::now();
    rounds();
    const double us = seconds_since(start) / kRounds * 1e6;
    (void)cudaFree(buffer);
    if (rank_ != 0) return;
    const std::lock_guard lock(output);
    fmt::print("| all_reduce | {} ranks | {} KiB | {:.1f} us |\n", ranks_, bytes / 1024, us);
  }

  static constexpr size_t kCount = 1000;
  int rank_, ranks_;
  uniComm_t comm_;
  cudaStream_t cuda_ = nullptr;
  uniStream_t stream_ = nullptr;
};

void collectives(int ranks) {
  uniConfig_t config = UNI_CONFIG_INITIALIZER;
  config.device = "cuda";
  config.timeout_ms = 120'000;
  std::vector<uniComm_t> comms(static_cast<size_t>(ranks));
  if (!uni_ok(uniCommInitAll(comms.data(), ranks, &config), "uniCommInitAll")) return;
  const int before = failures;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; r++) {
    threads.emplace_back([&, r] { Rank(r, ranks, comms[static_cast<size_t>(r)]).run(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const uniComm_t comm : comms) (void)uni_ok(uniCommDestroy(comm), "uniCommDestroy");
  if (failures == before) fmt::print("| all collectives | {} ranks | | exact |\n", ranks);
}

}  // namespace

int main() {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found != cudaSuccess || count == 0) {
    fmt::print("gpu-check: no GPU here: {}\nskipped\n", cudaGetErrorString(found));
    return 0;
  }
  cudaDeviceProp device{};
  (void)cuda_ok(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  fmt::print("{} x {}\n\n| what | how | size | result |\n|---|---|---|---|\n", count, device.name);
  copies();
  collectives(1);
  if (count > 1) collectives(count);
  return failures == 0 ? 0 : 1;
}
