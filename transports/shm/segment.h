// Segment: one rank's shared memory, its own or a peer's mapped here.
//
// Ranks that are threads of one process share one mapping (and one object), found by the segment's
// nonce, so that memory is not doubled and a thread sanitizer sees both sides of every access.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "base/env.h"
#include "base/net/socket.h"
#include "base/status.h"
#include "transports/shm/layout.h"

namespace unisono::shm {

class Segment {
 public:
  // A fresh one, owned by `rank`. Sparse: costs address space, and memory only where touched.
  static Result<std::shared_ptr<Segment>> create(int32_t rank, Env& env);
  // A peer's. Proves that it is the one the peer speaks of (nonce) and cannot be shrunk under us.
  // kRemoteError if not.
  static Result<std::shared_ptr<Segment>> attach(net::Fd fd, const Nonce& nonce, int32_t rank);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  const Nonce& nonce() const { return nonce_; }
  bool created_here() const { return created_here_; }  // its owner is of this process
  int fd() const { return fd_.get(); }                 // created_here only

  // The owner's thread only: takes a block and publishes it under the key. kSystemError when the
  // segment is full.
  Result<uint64_t> add_channel(const ChannelKey& key, const ChannelShape& shape, uint64_t bytes);
  // Memory that the owner has really touched.
  size_t touched_bytes() const;

  // Registered memory of the owner, for readers of the same process. Any thread.
  void add_region(uint64_t registration, std::byte* address, size_t bytes);
  void drop_region(uint64_t registration);
  struct View {
    const std::byte* address = nullptr;
    size_t bytes = 0;
  };
  View find_region(uint64_t registration);

 private:
  Segment() = default;
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  Nonce nonce_;
  net::Fd fd_;
  bool created_here_ = false;
  uint64_t allocated_ = 0;
  std::mutex regions_mutex_;
  std::map<uint64_t, View> regions_;
};

// Maps shared memory for this process alone: not in forked children, not in core dumps. nullptr:
// errno says why.
std::byte* map_shared(int fd, uint64_t offset, size_t bytes, bool writable);
// Whether the file behind fd can no longer shrink (a mapping of it cannot fault), and its size.
bool cannot_shrink(int fd, uint64_t* bytes);

// Can the sleeper order every sender's store before its own check (membarrier), so that senders
// need no fence? Registers this process.
bool membarrier_available();
// The sleeper's half of "flag, then check": a full barrier here and, with membarrier, on all
// registered processes.
void sleeper_barrier(bool membarrier);

}  // namespace unisono::shm
