// Ranks of the tcp transport as objects of one thread, over real sockets: what the tests of tcp and
// of wrap drive.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/net/endpoint.h"
#include "base/net/event_loop.h"
#include "transports/tcp/frame.h"
#include "transports/tcp/tcp_transport.h"

namespace unisono::testing {

inline constexpr int64_t kPatienceNs = 30'000'000'000;  // of a test that is about to fail

struct TcpRank {
  std::unique_ptr<Waiter> waiter;
  std::unique_ptr<net::Endpoint> endpoint;
  std::unique_ptr<Transport> transport;  // last: ends first
};

class TcpWorld {
 public:
  // `transports`: how many of the ranks get one; the others are left to the test as bare endpoints.
  // `options`: of every transport, as after "tcp:".
  TcpWorld(int ranks, int transports, const std::string& tcp_options = "") : options_(tcp_options) {
    auto loop = net::shared_event_loop();
    EXPECT_TRUE(loop.ok()) << loop.status().message();
    loop_ = *loop;
    net::Secret secret{};
    secret.fill(7);
    for (int rank = 0; rank < ranks; ++rank) {
      net::EndpointOptions options;
      options.rank = rank;
      options.secret = secret;
      auto endpoint = net::Endpoint::create(*loop_, options);
      EXPECT_TRUE(endpoint.ok()) << endpoint.status().message();
      ranks_.push_back({real_env().make_waiter(), std::move(*endpoint), nullptr});
    }
    for (TcpRank& one : ranks_) {
      for (int peer = 0; peer < ranks; ++peer) {
        Status set = one.endpoint->set_peer(peer, ranks_[peer].endpoint->address());
        EXPECT_TRUE(set.ok()) << set.message();
      }
    }
    for (int rank = 0; rank < transports; ++rank) make_transport(rank);
  }
  explicit TcpWorld(int ranks) : TcpWorld(ranks, ranks) {}

  void make_transport(int rank) {
    TransportContext context;
    context.env = &real_env();
    context.waiter = ranks_[rank].waiter.get();
    context.endpoint = ranks_[rank].endpoint.get();
    context.rank = rank;
    context.ranks = static_cast<int32_t>(ranks_.size());
    context.options = options_;
    auto transport = make_tcp_transport(context);
    ASSERT_TRUE(transport.ok()) << transport.status().message();
    const std::vector<std::string> addresses(ranks_.size(), (*transport)->address());
    Status connected = (*transport)->connect(addresses);
    ASSERT_TRUE(connected.ok()) << connected.message();
    ranks_[rank].transport = std::move(*transport);
  }

  Transport& operator[](int rank) { return *ranks_[rank].transport; }
  TcpRank& rank(int rank) { return ranks_[rank]; }
  net::EventLoop& loop() { return *loop_; }

  // Drives the transports of `driven` (empty: all) until `done`; sleeps when nothing moves. False:
  // it ran out of patience.
  bool until(const std::function<bool()>& done, std::vector<int> driven = {}) {
    if (driven.empty()) {
      for (size_t rank = 0; rank < ranks_.size(); ++rank) driven.push_back(static_cast<int>(rank));
    }
    const int64_t deadline_ns = real_env().now_ns() + kPatienceNs;
    while (!done()) {
      if (real_env().now_ns() > deadline_ns) return false;
      bool moved = false;
      std::vector<Waiter*> waiters;
      for (int rank : driven) {
        TcpRank& one = ranks_[rank];
        if (one.transport == nullptr) continue;
        moved |= one.transport->progress();
        waiters.push_back(one.waiter.get());
      }
      if (moved || done()) continue;
      bool stay = false;
      for (int rank : driven) {
        if (ranks_[rank].transport != nullptr) stay |= ranks_[rank].transport->arm();
      }
      // A bounded sleep: what a test waits for may come from a bare endpoint that wakes nobody.
      if (!stay) real_env().wait(waiters, real_env().now_ns() + 20'000'000);
      for (int rank : driven) {
        if (ranks_[rank].transport != nullptr) ranks_[rank].transport->disarm();
      }
    }
    return true;
  }

 private:
  const std::string options_;
  std::shared_ptr<net::EventLoop> loop_;
  std::vector<TcpRank> ranks_;
};

// Contents of message `index` of `bytes` bytes.
inline std::vector<char> pattern(uint64_t index, size_t bytes) {
  std::vector<char> out(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<char>(static_cast<unsigned char>((index * 131 + i * 7 + i / 251) & 0xff));
  }
  return out;
}

inline bool holds(const Message& message, uint64_t index, size_t bytes) {
  if (message.header.bytes != bytes || message.header.fingerprint != index) return false;
  const std::vector<char> wanted = pattern(index, bytes);
  return bytes == 0 ||
         std::equal(wanted.begin(), wanted.end(), reinterpret_cast<const char*>(message.data));
}

// The peer `rank` of a transport, played by the test on a raw authenticated socket. Higher than
// rank 0, so it dials.
class RawPeer {
 public:
  RawPeer(TcpWorld& world, int rank, int to) {
    std::atomic<bool> done{false};
    world.rank(rank).endpoint->dial(to, net::Purpose::kTcp, net::Via::kTcpOnly,
                                    real_env().now_ns() + kPatienceNs,
                                    [&](Result<net::Fd> fd, bool) {
                                      if (fd.ok()) fd_ = std::move(*fd);
                                      done.store(true, std::memory_order_release);
                                    });
    EXPECT_TRUE(world.until([&] { return done.load(std::memory_order_acquire); }, {to}));
    EXPECT_TRUE(fd_.valid());
  }
  void write(const void* bytes, size_t count) {
    const char* at = static_cast<const char*>(bytes);
    while (count > 0) {
      const ssize_t sent = ::send(fd_.get(), at, count, MSG_NOSIGNAL);
      if (sent < 0) {
        ASSERT_TRUE(errno == EAGAIN || errno == EINTR) << std::strerror(errno);
        pollfd ready{fd_.get(), POLLOUT, 0};
        poll(&ready, 1, 100);
        continue;
      }
      at += sent;
      count -= static_cast<size_t>(sent);
    }
  }
  void frame(const tcp::FrameHeader& header) {
    std::array<std::byte, tcp::kFrameBytes> bytes;
    tcp::encode_frame(header, bytes);
    write(bytes.data(), bytes.size());
  }
  void data(uint8_t channel, uint32_t sequence, const std::vector<char>& payload) {
    tcp::FrameHeader header;
    header.channel = channel;
    header.sequence = sequence;
    header.fingerprint = sequence;
    header.bytes = static_cast<uint32_t>(payload.size());
    frame(header);
    write(payload.data(), payload.size());
  }
  // The next frame, or nothing where none comes while the transport is driven. Payloads are
  // skipped.
  bool read(TcpWorld& world, tcp::FrameHeader* header) {
    std::array<std::byte, tcp::kFrameBytes> bytes;
    size_t got = 0;
    const auto arrived = [&] {
      const ssize_t count = recv(fd_.get(), bytes.data() + got, bytes.size() - got, MSG_DONTWAIT);
      if (count > 0) got += static_cast<size_t>(count);
      return got == bytes.size();
    };
    if (!world.until(arrived, {0})) return false;
    Status parsed = tcp::parse_frame(bytes, header);
    EXPECT_TRUE(parsed.ok()) << parsed.message();
    return parsed.ok();
  }
  int fd() const { return fd_.get(); }
  void hang_up() { fd_.reset(); }

 private:
  net::Fd fd_;
};

}  // namespace unisono::testing
