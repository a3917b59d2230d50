#include "transports/shm/links.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace unisono::shm {
namespace {

constexpr int64_t kHandshakeNs = 60'000'000'000;

bool is_non_blocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

}  // namespace

Peer::Mapping::~Mapping() {
  if (base != nullptr && !net::is_forked_child()) ::munmap(base, mapped_bytes);
}

Segment::View Peer::find_region(uint64_t registration, std::shared_ptr<void>* hold) {
  if (segment->created_here()) return segment->find_region(registration);
  const std::lock_guard lock(regions_mutex);
  const auto found = regions.find(registration);
  if (found == regions.end()) return {};
  *hold = found->second;
  return found->second->view;
}

Links::Links(const TransportContext& context, std::shared_ptr<Segment> own, bool membarrier,
             std::vector<std::unique_ptr<Peer>>* peers, StickyStatus* status)
    : context_(context),
      loop_(context.endpoint->loop()),
      own_(std::move(own)),
      membarrier_(membarrier),
      peers_(peers),
      status_(status) {}

void Links::start(std::vector<int32_t> candidates) {
  // A dial may complete after close(), when its endpoint goes: weak pointers.
  const std::weak_ptr<Links> weak = weak_from_this();
  context_.endpoint->on_accept(net::Purpose::kShm, [weak](int32_t rank, net::Fd fd, bool is_unix) {
    const std::shared_ptr<Links> self = weak.lock();
    if (self == nullptr || self->closed_ || !is_unix) return;
    if (rank <= self->context_.rank || rank >= self->context_.ranks)
      return;  // the higher rank dials
    self->adopt(rank, std::move(fd));
  });
  const int64_t deadline_ns = context_.env->now_ns() + kHandshakeNs;
  for (const int32_t rank : candidates) {
    if (rank > context_.rank) continue;
    context_.endpoint->dial(rank, net::Purpose::kShm, net::Via::kUnixOnly, deadline_ns,
                            [weak, rank](Result<net::Fd> fd, bool) {
                              const std::shared_ptr<Links> self = weak.lock();
                              if (self == nullptr || self->closed_) return;
                              if (!fd.ok()) {
                                self->fail_handshake(rank, fd.status().message());
                                return;
                              }
                              self->adopt(rank, std::move(*fd));
                            });
  }
}

Frame Links::frame(Frame::Kind kind) const {
  Frame frame;
  frame.kind = kind;
  frame.rank = context_.rank;
  return frame;
}

void Links::adopt(int32_t rank, net::Fd fd) {
  if (peer(rank).state.load() != PeerState::kWaiting || links_.contains(rank)) return;
  Link& link = links_[rank];
  link.fd = std::move(fd);
  auto id = loop_.add_fd(link.fd.get(), EPOLLIN,
                         [this, rank](uint32_t events) { on_event(rank, events); });
  if (!id.ok()) {
    links_.erase(rank);
    fail_handshake(rank, id.status().message());
    return;
  }
  link.id = *id;
  Link::Out hello{frame(Frame::kHello), {}, {own_->fd(), context_.waiter->event_fd()}};
  hello.frame.flag = membarrier_ ? 1 : 0;
  hello.frame.nonce = own_->nonce();
  hello.frame.bytes = own_->bytes();
  send(rank, std::move(hello));
}

void Links::on_event(int32_t rank, uint32_t events) {
  if (closed_ || !links_.contains(rank)) return;
  if ((events & EPOLLOUT) != 0) flush(rank);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && links_.contains(rank)) read_frames(rank);
}

void Links::read_frames(int32_t rank) {
  while (true) {
    const auto found = links_.find(rank);
    if (found == links_.end()) return;
    Link& link = found->second;
    std::byte bytes[sizeof(Frame)];
    std::vector<net::Fd> fds;
    auto got = net::receive_with_fds(link.fd.get(),
                                     std::span(bytes).first(sizeof(Frame) - link.in.size()), &fds);
    if (!got.ok() && got.status().code() == Code::kInProgress) return;
    if (!got.ok() || *got == 0) {
      drop(rank, got.ok() ? "end of stream" : got.status().message());
      return;
    }
    link.in.insert(link.in.end(), bytes, bytes + *got);
    for (net::Fd& fd : fds) link.in_fds.push_back(std::move(fd));
    if (link.in_fds.size() > 2) {
      drop(rank, "too many descriptors");
      return;
    }
    if (link.in.size() < sizeof(Frame)) continue;
    Frame frame;
    std::memcpy(&frame, link.in.data(), sizeof frame);
    link.in.clear();
    std::vector<net::Fd> received = std::move(link.in_fds);
    link.in_fds.clear();
    if (frame.magic != Frame{}.magic || frame.version != kLayoutVersion || frame.rank != rank) {
      drop(rank, "not a frame of this version");
      return;
    }
    if (!handle(rank, frame, std::move(received))) return;
  }
}

// False: the link is gone.
bool Links::handle(int32_t rank, const Frame& frame, std::vector<net::Fd> fds) {
  Link& link = links_.at(rank);
  Status status = ok_status();
  switch (frame.kind) {
    case Frame::kHello: {
      status = link.accepted_peer ? error(Code::kRemoteError, "a second hello")
                                  : accept_hello(rank, frame, std::move(fds));
      Link::Out verdict{this->frame(Frame::kVerdict), {}, {}};
      verdict.frame.flag = status.ok() ? 1 : 0;
      link.accepted_peer = status.ok();
      send(rank, std::move(verdict));
      break;
    }
    case Frame::kVerdict:
      link.accepted_us = frame.flag == 1;
      if (!link.accepted_us)
        status = error(Code::kRemoteError, "the peer could not map our memory");
      break;
    case Frame::kRegion:
      status = accept_region(rank, frame, std::move(fds));
      if (!status.ok()) status_->fail(status);
      break;
    case Frame::kForget: {
      Peer& from = peer(rank);
      const std::lock_guard lock(from.regions_mutex);
      from.regions.erase(frame.registration);
      break;
    }
    case Frame::kFarewell:
      link.farewell = true;
      break;
    default:
      status = error(Code::kRemoteError, "unknown frame {}", frame.kind);
  }
  if (!status.ok()) {
    drop(rank, status.message());
    return false;
  }
  if (!links_.contains(rank)) return false;
  if (link.accepted_peer && link.accepted_us) come_up(rank);
  return true;
}

Status Links::accept_hello(int32_t rank, const Frame& frame, std::vector<net::Fd> fds) {
  if (fds.size() != 2) return error(Code::kRemoteError, "a hello without its descriptors");
  if (!is_non_blocking(fds[1].get())) return error(Code::kRemoteError, "a bell that may block");
  Peer& from = peer(rank);
  auto segment = Segment::attach(std::move(fds[0]), frame.nonce, rank);
  if (!segment.ok()) return segment.status();
  if ((*segment)->bytes() != frame.bytes) {
    return error(Code::kRemoteError, "a segment of {} bytes that claims {}", (*segment)->bytes(),
                 frame.bytes);
  }
  from.segment = std::move(*segment);
  from.bell = std::move(fds[1]);
  from.fence = !membarrier_ || frame.flag != 1;
  return ok_status();
}

Status Links::accept_region(int32_t rank, const Frame& frame, std::vector<net::Fd> fds) {
  Peer& from = peer(rank);
  uint64_t file_bytes = 0;
  if (fds.size() != 1 || !cannot_shrink(fds[0].get(), &file_bytes) || frame.bytes == 0 ||
      frame.offset > file_bytes || frame.bytes > file_bytes - frame.offset) {
    return error(Code::kRemoteError, "rank {} registered memory that cannot be trusted", rank);
  }
  auto mapping = std::make_shared<Peer::Mapping>();
  const uint64_t skipped = frame.offset % kPageBytes;
  const size_t bytes = frame.bytes + skipped;
  mapping->base = map_shared(fds[0].get(), frame.offset - skipped, bytes, false);
  if (mapping->base == nullptr) return system_error(errno, "mmap of a peer's registered memory");
  mapping->mapped_bytes = bytes;
  mapping->view = {mapping->base + skipped, frame.bytes};
  {
    const std::lock_guard lock(from.regions_mutex);
    if (from.regions.size() >= kMaxRegions) {
      return error(Code::kRemoteError, "rank {} registered too many regions", rank);
    }
    from.regions[frame.registration] = std::move(mapping);
  }
  context_.waiter->notify();
  return ok_status();
}

void Links::come_up(int32_t rank) {
  Peer& from = peer(rank);
  PeerState expected = PeerState::kWaiting;
  // Full order against a sender that stores a message and then finds the peer not up
  // (ShmSendEnd::resolve): one of the two rings.
  if (!from.state.compare_exchange_strong(expected, PeerState::kUp)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t rung = ::write(from.bell.get(), &one, sizeof one);
  for (const auto& [registration, region] : regions_) send_region(rank, registration, region);
  context_.waiter->notify();
}

void Links::send(int32_t rank, Link::Out out) {
  const auto found = links_.find(rank);
  if (found == links_.end()) return;
  found->second.out.push_back(std::move(out));
  flush(rank);
}

// Sends what the socket takes. Errors are left to the reading side, which sees the end of the
// stream after what came before.
void Links::flush(int32_t rank) {
  Link& link = links_.at(rank);
  while (!link.out.empty()) {
    const Link::Out& next = link.out.front();
    std::vector<int> fds = next.borrowed;
    for (const auto& fd : next.fds) fds.push_back(fd->get());
    const Status sent =
        net::send_with_fds(link.fd.get(), std::as_bytes(std::span(&next.frame, 1)), fds);
    if (!sent.ok() && sent.code() == Code::kInProgress) {
      link.blocked = true;
      loop_.modify_fd(link.id, EPOLLIN | EPOLLOUT);
      return;
    }
    link.out.pop_front();
  }
  if (link.blocked) loop_.modify_fd(link.id, EPOLLIN);
  link.blocked = false;
}

void Links::send_region(int32_t rank, uint64_t registration, const OwnRegion& region) {
  if (peer(rank).segment == nullptr || peer(rank).segment->created_here()) return;
  Link::Out out{frame(Frame::kRegion), {region.fd}, {}};
  out.frame.registration = registration;
  out.frame.offset = region.offset;
  out.frame.bytes = region.bytes;
  send(rank, std::move(out));
}

void Links::announce_region(uint64_t registration, net::Fd fd, uint64_t offset, uint64_t bytes) {
  auto shared = std::make_shared<net::Fd>(std::move(fd));
  loop_.post([self = shared_from_this(), registration, shared, offset, bytes] {
    if (self->closed_) return;
    const OwnRegion region{shared, offset, bytes};
    self->regions_[registration] = region;
    for (const auto& [rank, link] : self->links_) {
      if (self->peer(rank).state.load() == PeerState::kUp) {
        self->send_region(rank, registration, region);
      }
    }
  });
}

void Links::forget_region(uint64_t registration) {
  loop_.post([self = shared_from_this(), registration] {
    if (self->closed_ || self->regions_.erase(registration) == 0) return;
    for (const auto& [rank, link] : self->links_) {
      if (self->peer(rank).segment == nullptr || self->peer(rank).segment->created_here()) continue;
      Link::Out out{self->frame(Frame::kForget), {}, {}};
      out.frame.registration = registration;
      self->send(rank, std::move(out));
    }
  });
}

// The link has ended: in order, by death, or before it was up.
void Links::drop(int32_t rank, const std::string& why) {
  const auto found = links_.find(rank);
  const bool farewell = found->second.farewell;
  loop_.remove(found->second.id);
  links_.erase(found);
  Peer& from = peer(rank);
  if (from.state.load() != PeerState::kUp) {
    fail_handshake(rank, why);
    return;
  }
  if (!farewell) {
    status_->fail(
        error(Code::kRemoteError, "rank {} died ({} on its shared-memory link)", rank, why));
  }
  from.state.store(farewell ? PeerState::kLeft : PeerState::kDead);
  context_.waiter->notify();
}

void Links::fail_handshake(int32_t rank, const std::string& why) {
  PeerState expected = PeerState::kWaiting;
  if (!peer(rank).state.compare_exchange_strong(expected, PeerState::kFailed)) return;
  log_debug("rank {}: no shared memory with rank {}: {}", context_.rank, rank, why);
  context_.waiter->notify();
}

void Links::give_up_waiting() {
  loop_.post([self = shared_from_this()] {
    if (self->closed_) return;
    for (const auto& each : *self->peers_) {
      if (each->state.load() != PeerState::kWaiting) continue;
      if (self->links_.contains(each->rank)) {
        self->drop(each->rank, "no answer in time");
      } else {
        self->fail_handshake(each->rank, "no answer in time");
      }
    }
  });
}

void Links::close() {
  context_.endpoint->stop_accept(net::Purpose::kShm);
  loop_.run_sync([this] {
    closed_ = true;
    for (auto& [rank, link] : links_) {
      const Frame last = frame(Frame::kFarewell);
      // A full socket means that the peer does not read; it will then take us for dead, the best we
      // can say. Sent during the handshake too: the peer may be a step ahead and have us up.
      (void)net::send_with_fds(link.fd.get(), std::as_bytes(std::span(&last, 1)), {});
      loop_.remove(link.id);
    }
    links_.clear();
    regions_.clear();
  });
}

}  // namespace unisono::shm
