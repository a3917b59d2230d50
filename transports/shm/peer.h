// What one rank knows of each peer of its machine: shared between the driving thread and the event
// loop's thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/net/socket.h"
#include "transports/shm/segment.h"

namespace unisono::shm {

enum class PeerState : int {
  kAbsent,   // not of this machine, or without shm
  kWaiting,  // the handshake is under way
  kFailed,   // it was not possible
  kUp,       // from here on `segment`, `bell` and `fence` are set and do not change
  kLeft,     // closed in order
  kDead,     // ended without a farewell
};

struct Peer {
  int32_t rank = 0;
  std::atomic<PeerState> state{PeerState::kAbsent};
  std::shared_ptr<Segment> segment;
  net::Fd bell;       // its waiter's eventfd
  bool fence = true;  // after sending to it a full fence is needed before looking whether it sleeps

  bool linked() const {
    const PeerState now = state.load(std::memory_order_acquire);
    return now == PeerState::kUp || now == PeerState::kLeft || now == PeerState::kDead;
  }
  // Memory that the peer has registered; empty: (not yet) known. `hold` keeps a mapping while it is
  // read.
  Segment::View find_region(uint64_t registration, std::shared_ptr<void>* hold);

  struct Mapping {
    std::byte* base = nullptr;  // page aligned
    size_t mapped_bytes = 0;
    Segment::View view;
    ~Mapping();
  };
  std::mutex regions_mutex;
  std::map<uint64_t, std::shared_ptr<Mapping>> regions;  // of other processes
};

inline constexpr size_t kMaxRegions = 4096;  // shared registrations a rank; more are sent by copy

// The first failure, from whichever thread sees it.
class StickyStatus {
 public:
  void fail(Status status) {
    const std::lock_guard lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) return;
    status_ = std::move(status);
    failed_.store(true, std::memory_order_release);
  }
  Status get() const { return failed_.load(std::memory_order_acquire) ? status_ : ok_status(); }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_{false};
  Status status_;
};

}  // namespace unisono::shm
