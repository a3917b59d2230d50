// What a ucx transport is made of: one worker and the links that it serves. It outlives the
// transport by a few seconds on the event loop, so that a peer can still read what was sent last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/net/event_loop.h"
#include "transports/ucx/context.h"
#include "transports/ucx/link.h"

namespace unisono::ucx {

inline constexpr int64_t kHurryNs = 1'000'000'000;

// What one rank publishes.
struct Address {
  uint64_t token = 0;  // every frame sent to that rank carries it
  uint64_t place = 0;  // ranks of one place reach the same peers: machine and namespaces
  std::string worker;  // UCX's own
};
std::string encode_address(const Address& address);
// kRemoteError if it is not one; what UCX wrote is not looked into.
Status decode_address(const std::string& bytes, Address* address);

class Core {
 public:
  static Result<std::unique_ptr<Core>> create(const TransportContext& context,
                                              const Options& options);
  ~Core();  // shuts every endpoint

  int32_t rank() const { return rank_; }
  int32_t ranks() const { return static_cast<int32_t>(links_.size()); }
  ucp_worker_h worker() const { return worker_.get(); }
  int efd() const { return worker_.efd(); }
  std::string address() const;
  void set_peers(std::vector<Address> peers) { peers_ = std::move(peers); }
  const Address& peer(int32_t rank) const { return peers_[static_cast<size_t>(rank)]; }
  uint64_t token() const { return token_; }

  Link& link(int32_t peer);
  const Link* known_link(int32_t peer) const { return links_[static_cast<size_t>(peer)].get(); }

  const Status& status() const { return status_; }
  void fail(Status failure) {
    if (status_.ok()) status_ = std::move(failure);
  }
  // Of a peer's endpoint: fails after kSuspicionNs, unless somebody else has named the cause by
  // then. A rank that leaves because of another's death may be missed before the death is told.
  void suspect(Status failure);

  bool progress();
  // For lend(): takes what has come, where that asks no kernel. True if anything moved.
  bool look() { return polls_cheaply_ && library().ucp_worker_progress(worker()) != 0; }
  // All peers that matter have been tried: whether looking asks no kernel from here on.
  bool settle_polling() { return polls_cheaply_ = !over_sockets(); }
  // Ready to sleep on efd(). False: there is something to do.
  bool arm();
  bool settled();
  // Drives until everything sent is UCX's affair no more, or the deadline.
  void flush(int64_t deadline_ns);
  // To every peer that we know of, after everything else.
  void say_farewells();
  // Shuts the links that still read memory of callers, who are about to have it back. Before
  // anything that drives UCX.
  void shut_borrowing();
  // One of the links there are goes over sockets.
  bool over_sockets() const;
  // Nobody is left to say farewell.
  bool deserted() const;
  // Drives until `done`, and shuts the link if that takes longer than kHurryNs: memory of the user
  // is needed back.
  void hurry(Link& link, const std::function<bool()>& done);

  // For links and channels.
  void await_landing(RecvChannel& channel);  // it has announced messages
  size_t memory_bytes = 0;                   // slots and buffers

 private:
  Core(const TransportContext& context, Worker worker);
  static ucs_status_t on_message(void* core, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param);
  ucs_status_t receive(const Frame& frame, const Delivery& delivery);
  bool land();
  void finish(void* request);  // waits for it

  Env& env_;
  const int32_t rank_;
  Worker worker_;
  Status suspicion_;
  int64_t suspected_at_ns_ = 0;
  uint64_t token_ = 0;
  Status status_;
  std::vector<Address> peers_;
  std::vector<std::unique_ptr<Link>> links_;  // by rank; null: not needed yet
  std::vector<Link*> active_;                 // those that are not null
  std::vector<RecvChannel*> announced_;
  uint32_t patience_ = 0;  // turns that announced messages have waited
  bool strangers_ = false;
  bool polls_cheaply_ = false;
};

// Keeps the core on the loop until its peers have left, at most kLingerNs.
inline constexpr int64_t kLingerNs = 5'000'000'000;
void linger(net::EventLoop& loop, std::unique_ptr<Core> core);

}  // namespace unisono::ucx
