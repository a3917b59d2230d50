#include "transports/shm/segment.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/net/event_loop.h"

namespace unisono::shm {
namespace {

// Address space, not memory: 32 GiB hold 26,000 channels of the default shape. Halved where the
// process is limited.
constexpr size_t kLargestSegment = size_t{32} << 30;
constexpr size_t kSmallestSegment = size_t{64} << 20;
constexpr size_t kLongestPeerSegment = size_t{1} << 40;

// The segments of this process by nonce. Never destroyed: a communicator may end in an exit
// handler.
struct Table {
  std::mutex mutex;
  std::map<Nonce, std::weak_ptr<Segment>> segments;
};
Table& table() {
  static auto* const instance = new Table;
  return *instance;
}

bool same_file(int a, int b) {
  struct stat first {
  }, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

std::byte* map_shared(int fd, uint64_t offset, size_t bytes, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* mapped = ::mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd,
                        static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return nullptr;
  ::madvise(mapped, bytes, MADV_DONTFORK);
  ::madvise(mapped, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(mapped);
}

bool cannot_shrink(int fd, uint64_t* bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || info.st_size < 0) return false;
  *bytes = static_cast<uint64_t>(info.st_size);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

Result<std::shared_ptr<Segment>> Segment::create(int32_t rank, Env& env) {
  std::shared_ptr<Segment> segment(new Segment);
  segment->fd_ = net::Fd(::memfd_create("unisono", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!segment->fd_.valid()) return system_error(errno, "memfd_create");
  const int fd = segment->fd_.get();
  // Limits of address space (RLIMIT_AS) are found by trying.
  for (size_t bytes = kLargestSegment; bytes >= kSmallestSegment; bytes /= 2) {
    if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) continue;
    segment->base_ = map_shared(fd, 0, bytes, true);
    if (segment->base_ == nullptr) continue;
    segment->bytes_ = bytes;
    break;
  }
  if (segment->base_ == nullptr) return system_error(errno, "mmap of a shared segment");
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return system_error(errno, "sealing a shared segment");
  }
  segment->created_here_ = true;
  env.random_bytes(&segment->nonce_, sizeof segment->nonce_);
  segment->allocated_ = round_up(sizeof(SegmentHeader), kPageBytes);
  auto* header =
      new (segment->base_) SegmentHeader;  // fresh memory is zero; only these fields are touched
  header->magic = kSegmentMagic;
  header->version = kLayoutVersion;
  header->rank = rank;
  header->nonce = segment->nonce_;
  header->bytes = segment->bytes_;
  const std::lock_guard lock(table().mutex);
  table().segments[segment->nonce_] = segment;
  return segment;
}

Result<std::shared_ptr<Segment>> Segment::attach(net::Fd fd, const Nonce& nonce, int32_t rank) {
  std::shared_ptr<Segment> known;  // released after the lock: its end takes the lock, too
  {
    const std::lock_guard lock(table().mutex);
    const auto found = table().segments.find(nonce);
    if (found != table().segments.end()) known = found->second.lock();
  }
  if (known != nullptr && same_file(known->fd(), fd.get())) return known;
  uint64_t bytes = 0;
  if (!cannot_shrink(fd.get(), &bytes)) {
    return error(Code::kRemoteError, "rank {}'s segment is not sealed shared memory", rank);
  }
  if (bytes < kSmallestSegment || bytes > kLongestPeerSegment) {
    return error(Code::kRemoteError, "rank {}'s segment has {} bytes", rank, bytes);
  }
  std::shared_ptr<Segment> segment(new Segment);
  segment->base_ = map_shared(fd.get(), 0, bytes, true);
  if (segment->base_ == nullptr) return system_error(errno, "mmap of a peer's segment");
  segment->bytes_ = bytes;
  segment->nonce_ = nonce;
  const SegmentHeader& header = segment->header();
  if (header.magic != kSegmentMagic || header.version != kLayoutVersion || header.rank != rank ||
      header.nonce != nonce) {
    return error(Code::kRemoteError, "rank {}'s segment is not the one it announced", rank);
  }
  return segment;
}

Segment::~Segment() {
  if (net::is_forked_child())
    return;  // not mapped here (MADV_DONTFORK): something else may be by now
  if (created_here_) {
    const std::lock_guard lock(table().mutex);
    table().segments.erase(nonce_);
  }
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

Result<uint64_t> Segment::add_channel(const ChannelKey& key, const ChannelShape& shape,
                                      uint64_t bytes) {
  SegmentHeader& own = header();
  const uint32_t count = own.directory_count.load(std::memory_order_relaxed);
  if (count >= kDirectoryEntries || bytes > bytes_ - allocated_) {
    return error(Code::kSystemError,
                 "no room for another channel of {} bytes in the shared segment", bytes);
  }
  const uint64_t offset = allocated_;
  allocated_ += bytes;
  own.directory[count] = {key.number, key.reader, shape.slice_bytes, shape.slots, offset, 0};
  own.directory_count.store(count + 1, std::memory_order_release);
  return offset;
}

size_t Segment::touched_bytes() const {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return 0;
  return static_cast<size_t>(info.st_blocks) * 512;
}

void Segment::add_region(uint64_t registration, std::byte* address, size_t bytes) {
  const std::lock_guard lock(regions_mutex_);
  regions_[registration] = {address, bytes};
}

void Segment::drop_region(uint64_t registration) {
  const std::lock_guard lock(regions_mutex_);
  regions_.erase(registration);
}

Segment::View Segment::find_region(uint64_t registration) {
  const std::lock_guard lock(regions_mutex_);
  const auto found = regions_.find(registration);
  return found == regions_.end() ? View{} : found->second;
}

bool membarrier_available() {
  // Asked every time: a forked child starts unregistered, and to be registered already costs
  // nothing.
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void sleeper_barrier(bool membarrier) {
  if (membarrier && ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0) return;
  // Here senders fence, so a fence completes the pair. A locked operation: sanitizers do not know
  // fences.
  static std::atomic<uint32_t> word{0};
  word.fetch_add(1, std::memory_order_seq_cst);
}

}  // namespace unisono::shm
