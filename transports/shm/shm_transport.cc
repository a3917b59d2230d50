#include "transports/shm/shm_transport.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "transports/shm/channel.h"
#include "transports/shm/links.h"

namespace unisono {
namespace {

using namespace shm;  // NOLINT: this file is that namespace's front door

constexpr char kAddress[] = "unisono-shm-1";  // presence and layout version: all that a peer needs
constexpr int64_t kLinkNs = 65'000'000'000;   // a little more than a dial may take

// An eighth of a core's L2: the slices that a pipeline works on at once (copied in, reduced, copied
// out, of each rank) then stay in it. With half of it 1 MiB took 2.5 times as long
// (docs/performance-log.md).
uint32_t best_slice_bytes() {
  const long l2 = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  constexpr long kUnknown = 1L << 20;
  return static_cast<uint32_t>(std::clamp((l2 > 0 ? l2 : kUnknown) / 8, 64L << 10, 256L << 10));
}

TransportCaps shm_caps() {
  TransportCaps caps;
  caps.name = "shm";
  caps.multicast = true;
  caps.by_reference = true;
  caps.prefers_reserve = true;
  caps.same_memory = true;
  caps.slice_bytes = best_slice_bytes();
  caps.slots = 4;
  // Of a meeting of two calls, not of the flag alone: up to 8 KiB one meeting beats two.
  caps.latency_us = 1.2;
  caps.gigabytes_per_s = 20;
  return caps;
}

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(const TransportContext& context) : context_(context) {
    for (int32_t rank = 0; rank < context.ranks; ++rank) {
      peers_.push_back(std::make_unique<Peer>());
      peers_.back()->rank = rank;
    }
  }
  ~ShmTransport() override { close(); }

  const TransportCaps& caps() const override { return caps_; }
  std::string address() const override { return kAddress; }
  Status connect(std::span<const std::string> addresses) override;
  bool reaches(int32_t peer) const override {
    return is_peer(peer) && peers_[static_cast<size_t>(peer)]->linked();
  }
  bool ready() const override;
  Result<SendEnd*> open_send(const ChannelKey& key, const ChannelShape& shape) override;
  Result<RecvEnd*> open_recv(const ChannelKey& key, const ChannelShape& shape) override;
  Result<uint64_t> register_memory(const Region& region) override;
  void deregister_memory(uint64_t registration) override;
  bool progress() override;
  bool arm() override;
  void disarm() override;
  Status status() const override { return status_.get(); }
  bool peer_left(int32_t peer) const override {
    return is_peer(peer) && peers_[static_cast<size_t>(peer)]->state.load(
                                std::memory_order_acquire) == PeerState::kLeft;
  }
  size_t memory_bytes() const override { return own_ == nullptr ? 0 : own_->touched_bytes(); }
  void close() override;

 private:
  bool is_peer(int32_t rank) const {
    return rank >= 0 && rank < context_.ranks && rank != context_.rank;
  }
  void decline(std::span<const int32_t> candidates);
  Status check_channel(const ChannelKey& key, const ChannelShape& shape, int32_t other) const;
  bool take_news();

  const TransportContext context_;
  const TransportCaps caps_ = shm_caps();
  StickyStatus status_;
  ReadClock read_clock_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank, ourselves included (never linked)
  std::shared_ptr<Segment> own_;              // null: no peer on this machine
  bool membarrier_ = false;
  std::shared_ptr<Links> links_;
  int64_t give_up_ns_ = kNeverNs;
  std::map<uint64_t, Registered> registered_;
  size_t shared_regions_ = 0;
  uint64_t last_registration_ = 0;
  std::map<ChannelKey, std::unique_ptr<ShmSendEnd>> send_ends_;
  std::map<ChannelKey, std::unique_ptr<ShmRecvEnd>> recv_ends_;
};

Status ShmTransport::connect(std::span<const std::string> addresses) {
  std::vector<int32_t> candidates;
  for (int32_t rank = 0; rank < context_.ranks; ++rank) {
    if (rank == context_.rank || context_.endpoint == nullptr) continue;
    if (static_cast<size_t>(rank) >= addresses.size()) break;
    if (addresses[static_cast<size_t>(rank)] != kAddress) continue;
    if (!context_.endpoint->same_host_hint(rank)) continue;
    candidates.push_back(rank);
  }
  if (candidates.empty()) return ok_status();
  auto own = Segment::create(context_.rank, *context_.env);
  if (!own.ok()) {
    log_warn("rank {}: no shared memory: {}", context_.rank, own.status().message());
    decline(candidates);
    return ok_status();  // other transports can do it
  }
  own_ = std::move(*own);
  membarrier_ = membarrier_available();
  for (const int32_t rank : candidates) {
    peers_[static_cast<size_t>(rank)]->state.store(PeerState::kWaiting);
  }
  give_up_ns_ = context_.env->now_ns() + kLinkNs;
  links_ = std::make_shared<Links>(context_, own_, membarrier_, &peers_, &status_);
  links_->start(std::move(candidates));
  return ok_status();
}

// Ends every link before its first word: the others wait for this rank, or will dial it.
void ShmTransport::decline(std::span<const int32_t> candidates) {
  context_.endpoint->on_accept(net::Purpose::kShm, [](int32_t, net::Fd, bool) {});
  for (const int32_t rank : candidates) {
    if (rank > context_.rank) continue;  // the higher rank dials
    context_.endpoint->dial(rank, net::Purpose::kShm, net::Via::kUnixOnly,
                            context_.env->now_ns() + kLinkNs, [](Result<net::Fd>, bool) {});
  }
}

bool ShmTransport::ready() const {
  for (const auto& peer : peers_) {
    if (peer->state.load(std::memory_order_acquire) == PeerState::kWaiting) return false;
  }
  return true;
}

Status ShmTransport::check_channel(const ChannelKey& key, const ChannelShape& shape,
                                   int32_t other) const {
  if (key.number > kMaxChannelNumber || !valid_shape(shape)) {
    return error(Code::kInvalidArgument, "shm channel {}: {} slots of {} bytes are not possible",
                 key.number, shape.slots, shape.slice_bytes);
  }
  for (int32_t rank = 0; rank < context_.ranks; ++rank) {
    if (rank == context_.rank || (other != kEveryone && rank != other)) continue;
    const PeerState state = peers_[static_cast<size_t>(rank)]->state.load();
    if (state == PeerState::kAbsent || state == PeerState::kFailed) {
      return error(Code::kInvalidUsage, "shm does not reach rank {}", rank);
    }
  }
  if (own_ == nullptr || (other != kEveryone && !is_peer(other))) {
    return error(Code::kInvalidUsage, "shm has no channel between rank {} and rank {}",
                 context_.rank, other);
  }
  return ok_status();
}

template <class End>
Result<End*> existing(const std::map<ChannelKey, std::unique_ptr<End>>& ends, const ChannelKey& key,
                      const ChannelShape& shape) {
  const auto found = ends.find(key);
  if (found == ends.end()) return static_cast<End*>(nullptr);
  const ChannelShape& known = found->second->shape();
  if (known.slice_bytes != shape.slice_bytes || known.slots != shape.slots) {
    return error(Code::kInvalidUsage, "shm channel {} is already open with another shape",
                 key.number);
  }
  return found->second.get();
}

Result<SendEnd*> ShmTransport::open_send(const ChannelKey& key, const ChannelShape& shape) {
  TRY_ASSIGN(ShmSendEnd * known, existing(send_ends_, key, shape));
  if (known != nullptr) return static_cast<SendEnd*>(known);
  if (key.writer != context_.rank)
    return error(Code::kInvalidUsage, "shm: not this rank's channel");
  TRY(check_channel(key, shape, key.reader));
  std::vector<Peer*> readers;
  if (key.reader == kEveryone) {
    for (int32_t rank = 0; rank < context_.ranks; ++rank) {
      readers.push_back(rank == context_.rank ? nullptr : peers_[static_cast<size_t>(rank)].get());
    }
  } else {
    readers.push_back(peers_[static_cast<size_t>(key.reader)].get());
  }
  const uint64_t bytes = block_layout(shape, static_cast<uint32_t>(readers.size())).bytes;
  TRY_ASSIGN(const uint64_t offset, own_->add_channel(key, shape, bytes));
  auto end = std::make_unique<ShmSendEnd>(key, shape, *own_, offset, std::move(readers),
                                          registered_, status_);
  return static_cast<SendEnd*>((send_ends_[key] = std::move(end)).get());
}

Result<RecvEnd*> ShmTransport::open_recv(const ChannelKey& key, const ChannelShape& shape) {
  TRY_ASSIGN(ShmRecvEnd * known, existing(recv_ends_, key, shape));
  if (known != nullptr) return static_cast<RecvEnd*>(known);
  if (key.reader != context_.rank && key.reader != kEveryone) {
    return error(Code::kInvalidUsage, "shm: not this rank's channel");
  }
  if (!is_peer(key.writer)) return error(Code::kInvalidUsage, "shm: no peer {}", key.writer);
  TRY(check_channel(key, shape, key.writer));
  auto end =
      std::make_unique<ShmRecvEnd>(key, shape, context_.rank, context_.ranks,
                                   *peers_[static_cast<size_t>(key.writer)], read_clock_, status_);
  return static_cast<RecvEnd*>((recv_ends_[key] = std::move(end)).get());
}

Result<uint64_t> ShmTransport::register_memory(const Region& region) {
  Registered entry{static_cast<const std::byte*>(region.address), region.bytes, false};
  const uint64_t registration = ++last_registration_;
  uint64_t file_bytes = 0;
  // Peers map only what cannot shrink under them. Such memory is never truncated, so sealing it
  // here is no loss to its owner.
  if (region.fd >= 0) ::fcntl(region.fd, F_ADD_SEALS, F_SEAL_SHRINK);
  if (own_ != nullptr && region.fd >= 0 && shared_regions_ < kMaxRegions && region.bytes > 0 &&
      cannot_shrink(region.fd, &file_bytes) && region.fd_offset <= file_bytes &&
      region.bytes <= file_bytes - region.fd_offset) {
    net::Fd copy(::fcntl(region.fd, F_DUPFD_CLOEXEC, 0));
    if (!copy.valid()) return system_error(errno, "dup of a registered region's descriptor");
    entry.shared = true;
    ++shared_regions_;
    own_->add_region(registration, static_cast<std::byte*>(region.address), region.bytes);
    links_->announce_region(registration, std::move(copy), region.fd_offset, region.bytes);
  }
  registered_[registration] = entry;
  return registration;
}

void ShmTransport::deregister_memory(uint64_t registration) {
  const auto found = registered_.find(registration);
  if (found == registered_.end()) return;
  if (found->second.shared && links_ != nullptr) {
    --shared_regions_;
    own_->drop_region(registration);
    links_->forget_region(registration);
  }
  registered_.erase(found);
}

bool ShmTransport::progress() {
  // Memory moves by itself; what is left is to stop waiting for peers that never answered.
  if (__builtin_expect(give_up_ns_ == kNeverNs, 1)) return false;
  if (ready()) {
    give_up_ns_ = kNeverNs;
    return true;
  }
  if (context_.env->now_ns() < give_up_ns_) return false;
  give_up_ns_ = kNeverNs;
  links_->give_up_waiting();
  return false;
}

bool ShmTransport::take_news() {
  for (const auto& [key, end] : recv_ends_) {
    if (end->take_news()) return true;
  }
  for (const auto& [key, end] : send_ends_) {
    if (end->take_news()) return true;
  }
  return false;
}

bool ShmTransport::arm() {
  if (own_ == nullptr) return false;
  uint32_t flag = kAsleep;
  for (const auto& [key, end] : send_ends_) {
    if (end->wants_credit()) flag |= kWantsCredit;
  }
  own_->header().sleeping.store(flag, std::memory_order_seq_cst);
  sleeper_barrier(membarrier_);
  if (!take_news()) return false;
  disarm();
  return true;
}

void ShmTransport::disarm() {
  if (own_ != nullptr) own_->header().sleeping.store(0, std::memory_order_relaxed);
}

void ShmTransport::close() {
  if (links_ != nullptr) links_->close();
  links_.reset();
  send_ends_.clear();
  recv_ends_.clear();
  for (const auto& peer : peers_) {
    peer->regions.clear();
    peer->segment.reset();
    peer->bell.reset();
  }
  own_.reset();
}

}  // namespace

Result<std::unique_ptr<Transport>> make_shm_transport(const TransportContext& context) {
  if (!context.options.empty())
    return error(Code::kInvalidArgument, "shm: unknown option '{}'; it has none", context.options);
  return std::unique_ptr<Transport>(std::make_unique<ShmTransport>(context));
}

Status shm_available(std::string* detail) {
  const net::Fd probe(::memfd_create("unisono-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!probe.valid()) return system_error(errno, "memfd_create");
  if (::ftruncate(probe.get(), 4096) != 0 ||
      ::fcntl(probe.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return system_error(errno, "sealing a memfd");
  }
  if (detail != nullptr) {
    *detail = membarrier_available() ? "memfd, sleepers use membarrier" : "memfd, senders fence";
  }
  return ok_status();
}

}  // namespace unisono
