#include "transports/tcp/tcp_transport.h"

#include <poll.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "base/net/endpoint.h"
#include "transports/tcp/mailbox.h"
#include "transports/tcp/peer_link.h"

namespace unisono {
namespace tcp {
namespace {

// Behind it the number of sockets a peer that the rank was asked for.
constexpr std::string_view kAddress = "unisono-tcp/2 sockets=";
constexpr int kMaxSockets = 16;
constexpr uint32_t kMaxSlots = 1024;
// The communicator has deadlines of its own; this one only keeps a dial from living for ever.
constexpr int64_t kDialNs = 300'000'000'000;
constexpr int64_t kFlushNs = 1'000'000'000;

// 0: not a number of sockets.
int parse_sockets(std::string_view text) {
  int sockets = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), sockets);
  const bool good = problem == std::errc() && end == text.data() + text.size() && sockets >= 1 &&
                    sockets <= kMaxSockets;
  return good ? sockets : 0;
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(const TransportContext& context, int sockets)
      : context_(context), sockets_(sockets) {
    caps_.name = "tcp";
    caps_.slice_bytes = 256u << 10;
    caps_.slots = 4;
    caps_.latency_us = 5;
    caps_.gigabytes_per_s = 3;
    state_.rank = context.rank;
    state_.waiter = context.waiter;
    links_.resize(static_cast<size_t>(context.ranks));
    if (context.endpoint != nullptr) {
      mailbox_ = std::make_shared<Mailbox>(context.endpoint->loop(), *context.waiter);
    }
  }
  ~TcpTransport() override { close(); }

  const TransportCaps& caps() const override { return caps_; }
  std::string address() const override { return fmt::format("{}{}", kAddress, sockets_); }
  Status connect(std::span<const std::string> addresses) override;
  bool reaches(int32_t peer) const override {
    return peer >= 0 && peer < context_.ranks && peer != context_.rank && !reachable_.empty() &&
           reachable_[static_cast<size_t>(peer)];
  }
  bool ready() const override { return true; }
  bool flushed() const override {
    return std::all_of(links_.begin(), links_.end(),
                       [](const auto& link) { return link == nullptr || link->idle(); });
  }

  Result<SendEnd*> open_send(const ChannelKey& key, const ChannelShape& shape) override;
  Result<RecvEnd*> open_recv(const ChannelKey& key, const ChannelShape& shape) override;

  Result<uint64_t> register_memory(const Region&) override { return next_registration_++; }
  void deregister_memory(uint64_t) override {}

  bool progress() override;
  bool arm() override;
  void disarm() override {}
  Status status() const override { return state_.status; }
  bool peer_left(int32_t peer) const override {
    return peer >= 0 && peer < context_.ranks && links_[static_cast<size_t>(peer)] != nullptr &&
           links_[static_cast<size_t>(peer)]->peer_left();
  }
  bool linked(int32_t peer) const override {
    return peer >= 0 && peer < context_.ranks && links_[static_cast<size_t>(peer)] != nullptr &&
           links_[static_cast<size_t>(peer)]->was_up();
  }
  size_t memory_bytes() const override { return state_.memory_bytes; }
  void close() override;

 private:
  Result<PeerLink*> usable_link(const ChannelKey& key, int32_t peer, const ChannelShape& shape);
  PeerLink& link(int32_t peer);
  void dial(PeerLink& link);
  bool take_arrivals();
  void flush_all();

  const TransportContext context_;
  int sockets_;  // a peer; after connect: the least that any rank was asked for
  TransportCaps caps_;
  LinkState state_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<bool> reachable_;
  std::vector<std::unique_ptr<PeerLink>> links_;  // by rank; null: not needed yet
  std::vector<PeerLink*> active_;                 // those that had a socket
  uint64_t next_registration_ = 1;
  bool closed_ = false;
};

Status TcpTransport::connect(std::span<const std::string> addresses) {
  if (addresses.size() != links_.size() || !reachable_.empty()) {
    return error(Code::kInvalidUsage, "tcp: connect with {} addresses for {} ranks, or twice",
                 addresses.size(), context_.ranks);
  }
  for (size_t peer = 0; peer < addresses.size(); ++peer) {
    const std::string& address = addresses[peer];
    reachable_.push_back(!address.empty());
    if (address.empty()) continue;
    const int sockets = address.starts_with(kAddress)
                            ? parse_sockets(std::string_view(address).substr(kAddress.size()))
                            : 0;
    if (sockets == 0) {
      return error(Code::kRemoteError, "tcp: rank {} speaks another version ({} bytes)", peer,
                   address.size());
    }
    sockets_ = std::min(sockets_, sockets);
  }
  if (context_.endpoint == nullptr) return {};
  context_.endpoint->on_accept(net::Purpose::kTcp, [mailbox = mailbox_, rank = context_.rank,
                                                    ranks = context_.ranks](int32_t peer,
                                                                            net::Fd fd, bool) {
    if (peer <= rank || peer >= ranks) {
      log_warn("tcp: rank {} dialled rank {}: the higher one of a pair dials; refused", peer, rank);
      return;
    }
    mailbox->deliver(peer, std::move(fd));
  });
  return {};
}

PeerLink& TcpTransport::link(int32_t peer) {
  auto& link = links_[static_cast<size_t>(peer)];
  if (link == nullptr) link = std::make_unique<PeerLink>(peer, sockets_, state_);
  return *link;
}

void TcpTransport::dial(PeerLink& link) {
  if (link.dialled || link.peer() > context_.rank) return;
  link.dialled = true;
  for (int i = 0; i < sockets_; ++i) {
    context_.endpoint->dial(link.peer(), net::Purpose::kTcp, net::Via::kTcpOnly,
                            context_.env->now_ns() + kDialNs,
                            [mailbox = mailbox_, peer = link.peer()](Result<net::Fd> fd, bool) {
                              mailbox->deliver(peer, std::move(fd));
                            });
  }
}

Result<PeerLink*> TcpTransport::usable_link(const ChannelKey& key, int32_t peer,
                                            const ChannelShape& shape) {
  if (closed_) return error(Code::kInvalidUsage, "tcp: a channel opened after close");
  TRY(state_.status);
  if (key.reader == kEveryone) {
    return error(Code::kInvalidArgument, "tcp: channel {} with several readers", key.number);
  }
  if (key.number > kMaxChannelNumber || shape.slots < 2 || shape.slots > kMaxSlots ||
      shape.slice_bytes < 1 || shape.slice_bytes > kMaxSliceBytes) {
    return error(Code::kInvalidArgument, "tcp: channel {} of {} slots of {} B", key.number,
                 shape.slots, shape.slice_bytes);
  }
  if (!reaches(peer) || context_.endpoint == nullptr) {
    return error(Code::kInvalidArgument, "tcp: no link to rank {} from rank {}", peer,
                 context_.rank);
  }
  PeerLink& found = link(peer);
  dial(found);
  return &found;
}

Result<SendEnd*> TcpTransport::open_send(const ChannelKey& key, const ChannelShape& shape) {
  if (key.writer != context_.rank) {
    return error(Code::kInvalidArgument, "tcp: rank {} opened the send end of rank {}",
                 context_.rank, key.writer);
  }
  TRY_ASSIGN(PeerLink * link, usable_link(key, key.reader, shape));
  TRY_ASSIGN(SendEnd * end, link->open_send(static_cast<uint8_t>(key.number), shape));
  return end;
}

Result<RecvEnd*> TcpTransport::open_recv(const ChannelKey& key, const ChannelShape& shape) {
  if (key.reader != context_.rank && key.reader != kEveryone) {
    return error(Code::kInvalidArgument, "tcp: rank {} opened the receive end of rank {}",
                 context_.rank, key.reader);
  }
  TRY_ASSIGN(PeerLink * link, usable_link(key, key.writer, shape));
  TRY_ASSIGN(RecvEnd * end, link->open_recv(static_cast<uint8_t>(key.number), shape));
  return end;
}

bool TcpTransport::take_arrivals() {
  if (mailbox_ == nullptr || !mailbox_->waiting()) return false;
  for (Arrival& arrival : mailbox_->take()) {
    if (!arrival.fd.ok()) {
      state_.fail(
          arrival.fd.status().annotate(fmt::format("tcp: cannot reach rank {}", arrival.peer)));
      continue;
    }
    PeerLink& to = link(arrival.peer);
    const bool is_first = !to.was_up();
    if (!to.attach(std::move(*arrival.fd))) {
      log_warn("tcp: rank {} made more links than the {} agreed; refused", arrival.peer, sockets_);
      continue;
    }
    if (is_first && to.up()) active_.push_back(&to);
  }
  return true;
}

bool TcpTransport::progress() {
  if (closed_ || !state_.status.ok()) return false;
  bool moved = take_arrivals();
  for (PeerLink* link : active_) moved |= link->progress();
  if (!state_.status.ok()) {
    for (PeerLink* link : active_) link->mute();
  }
  return moved;
}

// Sockets wake the waiter by themselves (their readability is level-triggered); arrivals notify it.
bool TcpTransport::arm() {
  if (closed_) return false;
  for (PeerLink* link : active_) link->arm();
  return mailbox_ != nullptr && mailbox_->waiting() && state_.status.ok();
}

// Until everything accepted is in the kernel's hands, within kFlushNs. Reads meanwhile: the peer
// may have to, too.
void TcpTransport::flush_all() {
  const int64_t deadline_ns = context_.env->now_ns() + kFlushNs;
  std::vector<pollfd> waits;
  while (state_.status.ok()) {
    (void)take_arrivals();
    waits.clear();
    size_t unsent = 0;
    for (auto& link : links_) {
      if (link == nullptr) continue;
      if (link->up()) link->say_farewell();
      for (const auto& stream : link->streams()) {
        if (stream->idle() || stream->output_failed()) continue;
        ++unsent;
        if (stream->up()) waits.push_back({stream->fd(), POLLIN | POLLOUT, 0});
      }
    }
    if (unsent == 0 || context_.env->now_ns() >= deadline_ns) return;
    (void)poll(waits.data(), waits.size(), 5);
    for (PeerLink* link : active_) (void)link->progress();
  }
}

void TcpTransport::close() {
  if (std::exchange(closed_, true) || mailbox_ == nullptr) return;
  context_.endpoint->stop_accept(net::Purpose::kTcp);
  for (auto& link : links_) {
    if (link != nullptr) link->give_up_borrowed();
  }
  flush_all();
  mailbox_->close();
  for (auto& link : links_) {
    if (link == nullptr) continue;
    if (link->idle()) {
      link->say_farewell();  // also after a failure of another link, where nothing is lost on this
                             // one
    } else if (const size_t unsent = link->unsent_messages(); unsent > 0 && state_.status.ok()) {
      log_warn("tcp: closing with {} messages to rank {} unsent", unsent, link->peer());
    }
    for (const auto& stream : link->streams()) {
      // One that came after the farewell has carried nothing: it only needs its own.
      const bool unused = stream->idle() && !stream->farewell_sent() && !stream->output_failed();
      net::Fd fd = stream->detach();
      if (fd.valid()) retire(context_.endpoint->loop(), std::move(fd), unused);
    }
  }
}

}  // namespace
}  // namespace tcp

Status tcp_available(std::string* detail) {
  TRY_ASSIGN(const auto addresses, net::local_addresses(environment().interfaces));
  if (addresses.empty()) {
    return error(Code::kSystemError, "tcp: no usable network address (UNISONO_INTERFACES={})",
                 environment().interfaces);
  }
  if (detail == nullptr) return {};
  detail->clear();
  for (const net::Address& address : addresses) {
    std::string text = address.text();
    if (const size_t port = text.rfind(":0");
        port != std::string::npos && port + 2 == text.size()) {
      text.resize(port);
    }
    detail->append(detail->empty() ? "" : " ").append(text);
  }
  return {};
}

Result<std::unique_ptr<Transport>> make_tcp_transport(const TransportContext& context) {
  if (context.env == nullptr || context.waiter == nullptr ||
      (context.endpoint == nullptr && context.ranks > 1)) {
    return error(Code::kInvalidUsage, "tcp: needs an environment, a waiter and an endpoint");
  }
  constexpr std::string_view kSockets = "sockets=";
  int sockets = 1;
  if (!context.options.empty()) {
    sockets = context.options.starts_with(kSockets)
                  ? tcp::parse_sockets(std::string_view(context.options).substr(kSockets.size()))
                  : 0;
    if (sockets == 0) {
      return error(Code::kInvalidArgument,
                   "tcp: unknown option '{}'; there is sockets=N, from 1 to {}", context.options,
                   tcp::kMaxSockets);
    }
  }
  return std::unique_ptr<Transport>(std::make_unique<tcp::TcpTransport>(context, sockets));
}

}  // namespace unisono
