#include "bench/comm_bench/work.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/comm_bench/launch.h"
#include "bench/comm_bench/pattern.h"

namespace bench {
namespace {

constexpr size_t kColdBytes =
    size_t{128} << 20;  // walked through in cold mode: more than any shared cache here

char* allocate(bool registered, uniComm_t comm, size_t bytes, void** handle) {
  void* at = nullptr;
  if (registered) {
    must(uniMemAlloc(&at, bytes), "uniMemAlloc");
    must(uniCommRegister(comm, at, bytes, handle), "uniCommRegister");
  } else {
    at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
      perror("comm-bench: mmap");
      exit(3);
    }
  }
  std::memset(at, 0, bytes);  // every page touched
  return static_cast<char*>(at);
}

}  // namespace

Sizes sizes_of(Work work, size_t bytes, size_t type_bytes, int ranks) {
  const auto n = static_cast<size_t>(ranks);
  Sizes s;
  switch (work) {
    case Work::kBarrier:
      return s;
    case Work::kAllGather:
    case Work::kGather:
      s.count = bytes / type_bytes / n;
      s.send_elements = s.count;
      s.recv_elements = s.count * n;
      s.elements = s.count;
      break;
    case Work::kReduceScatter:
    case Work::kScatter:
      s.count = bytes / type_bytes / n;
      s.send_elements = s.count * n;
      s.recv_elements = s.count;
      s.elements = s.count;
      break;
    case Work::kAllToAll:
      s.count = bytes / type_bytes / n;
      s.send_elements = s.recv_elements = s.count * n;
      s.elements = s.count;
      break;
    default:
      s.count = s.elements = s.send_elements = s.recv_elements = bytes / type_bytes;
      break;
  }
  s.bytes = std::max(s.send_elements, s.recv_elements) * type_bytes;
  return s;
}

double bus_factor(Work work, int ranks) {
  const double n = ranks;
  switch (work) {
    case Work::kAllReduce:
      return 2 * (n - 1) / n;
    case Work::kReduceScatter:
    case Work::kAllGather:
    case Work::kAllToAll:
    case Work::kGather:
    case Work::kScatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

WorkBuffers::WorkBuffers(const Options& options, uniComm_t comm, int rank, int ranks,
                         size_t most_bytes)
    : options_(options), comm_(comm), rank_(rank), ranks_(ranks) {
  stride_ = (most_bytes + 4095) / 4096 * 4096 + 4096;
  if (options.cache == Cache::kCold)
    copies_ = static_cast<int>(std::max<size_t>(1, kColdBytes / stride_));
  const size_t bytes = stride_ * static_cast<size_t>(copies_);
  send_ = allocate(options.registered, comm, bytes, &send_handle_);
  recv_ = allocate(options.registered, comm, bytes, &recv_handle_);
}

WorkBuffers::~WorkBuffers() {
  const size_t bytes = stride_ * static_cast<size_t>(copies_);
  if (options_.registered) {
    must(uniCommDeregister(comm_, send_handle_), "uniCommDeregister");
    must(uniCommDeregister(comm_, recv_handle_), "uniCommDeregister");
    must(uniMemFree(send_), "uniMemFree");
    must(uniMemFree(recv_), "uniMemFree");
  } else {
    munmap(send_, bytes);
    munmap(recv_, bytes);
  }
}

// In place: one buffer, with the offsets of SEMANTICS.
char* WorkBuffers::send_pointer(const Case& c, int copy) const {
  char* at = (c.in_place ? recv_ : send_) + static_cast<size_t>(copy) * stride_;
  const bool own_block = options_.work == Work::kAllGather || options_.work == Work::kGather;
  if (c.in_place && own_block) at += static_cast<size_t>(rank_) * c.sizes.count * c.type->bytes;
  return at;
}

char* WorkBuffers::recv_pointer(const Case& c, int copy) const {
  char* at = recv_ + static_cast<size_t>(copy) * stride_;
  const bool own_block = options_.work == Work::kReduceScatter || options_.work == Work::kScatter;
  if (c.in_place && own_block) at += static_cast<size_t>(rank_) * c.sizes.count * c.type->bytes;
  return at;
}

void WorkBuffers::fill_inputs(const Case& c) {
  for (int copy = 0; copy < copies_; copy++) {
    if (!c.in_place)
      std::memset(recv_pointer(c, copy), 0x5a, c.sizes.recv_elements * c.type->bytes);
    fill(send_pointer(c, copy), input_period(*c.type, c.op, rank_, ranks_), c.type->bytes, 0,
         c.sizes.send_elements);
  }
  next_ = 0;
}

void WorkBuffers::rewrite_input(const Case& c) {
  char* at = send_pointer(c, next_);
  const size_t bytes = c.sizes.send_elements * c.type->bytes;
  for (size_t i = 0; i < bytes; i += 64) *const_cast<volatile char*>(at + i) = at[i];
}

WorkBuffers::Pointers WorkBuffers::next(const Case& c) {
  const int copy = next_;
  next_ = (next_ + 1) % copies_;
  return {send_pointer(c, copy), recv_pointer(c, copy)};
}

void WorkBuffers::issue(const Case& c, uniStream_t stream) {
  const auto [send, recv] = next(c);
  const size_t n = c.sizes.count;
  const uniDataType_t t = c.type->type;
  uniResult_t result = uniSuccess;
  switch (options_.work) {
    case Work::kAllReduce:
      result = uniAllReduce(send, recv, n, t, c.op, comm_, stream);
      break;
    case Work::kReduce:
      result = uniReduce(send, recv, n, t, c.op, c.root, comm_, stream);
      break;
    case Work::kBroadcast:
      result = uniBroadcast(send, recv, n, t, c.root, comm_, stream);
      break;
    case Work::kAllGather:
      result = uniAllGather(send, recv, n, t, comm_, stream);
      break;
    case Work::kReduceScatter:
      result = uniReduceScatter(send, recv, n, t, c.op, comm_, stream);
      break;
    case Work::kGather:
      result = uniGather(send, recv, n, t, c.root, comm_, stream);
      break;
    case Work::kScatter:
      result = uniScatter(send, recv, n, t, c.root, comm_, stream);
      break;
    case Work::kAllToAll:
      result = uniAllToAll(send, recv, n, t, comm_, stream);
      break;
    case Work::kBarrier:
      result = uniBarrier(comm_, stream);
      break;
    case Work::kPingPong:
      break;  // ping_pong.cc
    case Work::kSendRecv:
      must(uniGroupStart(), "uniGroupStart");
      must(uniSend(send, n, t, (rank_ + 1) % ranks_, comm_, stream), "uniSend");
      must(uniRecv(recv, n, t, (rank_ + ranks_ - 1) % ranks_, comm_, stream), "uniRecv");
      result = uniGroupEnd();
      break;
  }
  must(result, options_.work_name.c_str(), comm_);
}

size_t WorkBuffers::wrong(const Case& c) const {
  const bool at_root = rank_ == c.root;
  const char* recv = recv_pointer(c, 0);
  const size_t n = c.sizes.count, size = c.type->bytes;
  const auto from = [&](int rank) { return input_period(*c.type, c.op, rank, ranks_); };
  switch (options_.work) {
    case Work::kBarrier:
      return 0;
    case Work::kAllReduce:
      return count_wrong(recv, reduced_period(*c.type, c.op, ranks_), size, 0, n);
    case Work::kReduce:
      return at_root ? count_wrong(recv, reduced_period(*c.type, c.op, ranks_), size, 0, n) : 0;
    case Work::kReduceScatter:
      return count_wrong(recv, reduced_period(*c.type, c.op, ranks_), size,
                         static_cast<size_t>(rank_) * n, n);
    case Work::kBroadcast:
      return count_wrong(recv, from(c.root), size, 0, n);
    case Work::kScatter:
      return count_wrong(recv, from(c.root), size, static_cast<size_t>(rank_) * n, n);
    case Work::kSendRecv:
      return count_wrong(recv, from((rank_ + ranks_ - 1) % ranks_), size, 0, n);
    default:
      break;
  }
  if (options_.work == Work::kGather && !at_root) return 0;
  size_t wrong = 0;
  for (int r = 0; r < ranks_; r++) {
    const size_t first = options_.work == Work::kAllToAll ? static_cast<size_t>(rank_) * n : 0;
    wrong += count_wrong(recv + static_cast<size_t>(r) * n * size, from(r), size, first, n);
  }
  return wrong;
}

}  // namespace bench
