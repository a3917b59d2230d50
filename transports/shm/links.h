// Links: the unix sockets between the ranks of one machine. They prove that memory is shared, hand
// over descriptors, and tell of departures and deaths; no data passes here.
//
// Handshake, both ways at once: HELLO {nonce, size} with the segment and the waiter's eventfd; the
// receiver maps and checks it and answers VERDICT. A peer is up when it said yes and so did we.
// Later: REGION with a descriptor, FORGET, FAREWELL. End of stream without a farewell means that
// the peer died.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/net/endpoint.h"
#include "transports/shm/peer.h"
#include "transports/transport.h"

namespace unisono::shm {

// One size fits every message, so that a read never takes bytes of the next one (whose descriptors
// would be lost).
struct Frame {
  enum Kind : uint16_t { kHello = 1, kVerdict, kRegion, kForget, kFarewell };
  uint32_t magic = 0x6d685375;
  uint16_t version = kLayoutVersion;
  uint16_t kind = 0;
  int32_t rank = 0;
  uint32_t flag = 0;  // HELLO: sleeps with membarrier; VERDICT: yes
  Nonce nonce;
  uint64_t registration = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t reserved = 0;
};
static_assert(sizeof(Frame) == 64);

class Links : public std::enable_shared_from_this<Links> {
 public:
  // All pointers outlive close(). `peers` is indexed by rank.
  Links(const TransportContext& context, std::shared_ptr<Segment> own, bool membarrier,
        std::vector<std::unique_ptr<Peer>>* peers, StickyStatus* status);
  // The driving thread's; none of them blocks but for the loop's present callback.
  void start(std::vector<int32_t> candidates);  // every one is kWaiting
  void announce_region(uint64_t registration, net::Fd fd, uint64_t offset, uint64_t bytes);
  void forget_region(uint64_t registration);
  void give_up_waiting();  // whoever has not answered is kFailed
  void close();            // farewell to all; no callback runs after it

 private:
  struct Link {
    net::Fd fd;
    net::EventLoop::Id id = 0;
    std::vector<std::byte> in;  // of the frame that is arriving
    std::vector<net::Fd> in_fds;
    struct Out {
      Frame frame;
      std::vector<std::shared_ptr<net::Fd>> fds;
      std::vector<int> borrowed;
    };
    std::deque<Out> out;
    bool blocked = false;        // waits for room in the socket
    bool accepted_peer = false;  // we mapped its segment
    bool accepted_us = false;
    bool farewell = false;
  };
  struct OwnRegion {
    std::shared_ptr<net::Fd> fd;
    uint64_t offset;
    uint64_t bytes;
  };
  // All below run on the loop's thread.
  void adopt(int32_t rank, net::Fd fd);
  void on_event(int32_t rank, uint32_t events);
  void read_frames(int32_t rank);
  bool handle(int32_t rank, const Frame& frame, std::vector<net::Fd> fds);
  Status accept_hello(int32_t rank, const Frame& frame, std::vector<net::Fd> fds);
  Status accept_region(int32_t rank, const Frame& frame, std::vector<net::Fd> fds);
  void come_up(int32_t rank);
  void send(int32_t rank, Link::Out out);
  void flush(int32_t rank);
  void send_region(int32_t rank, uint64_t registration, const OwnRegion& region);
  void drop(int32_t rank, const std::string& why);
  void fail_handshake(int32_t rank, const std::string& why);
  Frame frame(Frame::Kind kind) const;
  Peer& peer(int32_t rank) { return *(*peers_)[static_cast<size_t>(rank)]; }

  const TransportContext context_;
  net::EventLoop& loop_;
  const std::shared_ptr<Segment> own_;
  const bool membarrier_;
  std::vector<std::unique_ptr<Peer>>* const peers_;
  StickyStatus* const status_;
  std::map<int32_t, Link> links_;
  std::map<uint64_t, OwnRegion> regions_;
  bool closed_ = false;
};

}  // namespace unisono::shm
