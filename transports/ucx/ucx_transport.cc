#include "transports/ucx/ucx_transport.h"

#include <set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/net/endpoint.h"
#include "transports/ucx/core.h"

namespace unisono {
namespace ucx {
namespace {

constexpr uint32_t kMaxSlots = 1024;
// What is not gone by then goes while the core lingers.
constexpr int64_t kFlushNs = 100'000'000;
// Whether UCX has a way to the ranks of another place is tried on one of them, for so many places.
constexpr size_t kMaxTriedPlaces = 16;

class UcxTransport final : public Transport {
 public:
  UcxTransport(const TransportContext& context, std::unique_ptr<Core> core)
      : context_(context), core_(std::move(core)) {
    caps_.name = "ucx";
    caps_.slice_bytes = 256u << 10;
    caps_.slots = 4;
    caps_.latency_us = 2;
    caps_.gigabytes_per_s = 10;
  }
  ~UcxTransport() override { close(); }

  const TransportCaps& caps() const override { return caps_; }
  std::string address() const override { return core_ != nullptr ? core_->address() : ""; }
  Status connect(std::span<const std::string> addresses) override;
  bool reaches(int32_t peer) const override {
    return peer >= 0 && peer < context_.ranks && peer != context_.rank && !reachable_.empty() &&
           reachable_[static_cast<size_t>(peer)];
  }
  bool ready() const override { return true; }
  bool flushed() const override { return core_ == nullptr || core_->settled(); }

  Result<SendEnd*> open_send(const ChannelKey& key, const ChannelShape& shape) override;
  Result<RecvEnd*> open_recv(const ChannelKey& key, const ChannelShape& shape) override;

  // UCX registers what it sends or receives by itself, and remembers it.
  Result<uint64_t> register_memory(const Region&) override { return next_registration_++; }
  void deregister_memory(uint64_t) override {}

  bool progress() override { return usable() && core_->progress(); }
  bool arm() override { return usable() && !core_->arm(); }
  void disarm() override {}
  Status status() const override { return core_ != nullptr ? core_->status() : last_status_; }
  bool peer_left(int32_t peer) const override {
    const Link* link = known_link(peer);
    return link != nullptr && link->peer_left();
  }
  bool linked(int32_t peer) const override {
    const Link* link = known_link(peer);
    return link != nullptr && link->heard();
  }
  size_t memory_bytes() const override { return core_ != nullptr ? core_->memory_bytes : 0; }
  void close() override;
  Status watch() { return context_.waiter->add_fd(core_->efd()); }

 private:
  bool usable() const { return core_ != nullptr && core_->status().ok(); }
  const Link* known_link(int32_t peer) const {
    if (core_ == nullptr || peer < 0 || peer >= context_.ranks) return nullptr;
    return core_->known_link(peer);
  }
  void try_places(const std::vector<Address>& peers);
  Result<Link*> usable_link(const ChannelKey& key, int32_t peer, const ChannelShape& shape);

  const TransportContext context_;
  TransportCaps caps_;
  std::unique_ptr<Core> core_;  // null: closed
  Status last_status_;
  std::vector<bool> reachable_;
  uint64_t next_registration_ = 1;
};

Status UcxTransport::connect(std::span<const std::string> addresses) {
  if (addresses.size() != static_cast<size_t>(context_.ranks) || !reachable_.empty() ||
      core_ == nullptr) {
    return error(Code::kInvalidUsage, "ucx: connect with {} addresses for {} ranks, or twice",
                 addresses.size(), context_.ranks);
  }
  std::vector<Address> peers(addresses.size());
  for (size_t peer = 0; peer < addresses.size(); ++peer) {
    reachable_.push_back(!addresses[peer].empty());
    if (addresses[peer].empty()) continue;
    if (Status read = decode_address(addresses[peer], &peers[peer]); !read.ok()) {
      return read.annotate(fmt::format("ucx: rank {}", peer));
    }
  }
  core_->set_peers(peers);
  try_places(peers);
  caps_.cheap_poll = core_->settle_polling();
  return {};
}

// UCX may have no way to a peer (tls=shm between hosts), and says so only when asked for an
// endpoint. Ranks of one place are alike.
void UcxTransport::try_places(const std::vector<Address>& peers) {
  std::set<uint64_t> tried, unreachable;
  for (size_t peer = 0; peer < peers.size(); ++peer) {
    if (static_cast<int32_t>(peer) == context_.rank || !reachable_[peer]) continue;
    if (tried.size() >= kMaxTriedPlaces || !tried.insert(peers[peer].place).second) continue;
    if (Status opened = core_->link(static_cast<int32_t>(peer)).open(); !opened.ok()) {
      log_info("{}", opened.message());
      unreachable.insert(peers[peer].place);
    }
  }
  for (size_t peer = 0; peer < peers.size(); ++peer) {
    if (unreachable.count(peers[peer].place) != 0) reachable_[peer] = false;
  }
}

Result<Link*> UcxTransport::usable_link(const ChannelKey& key, int32_t peer,
                                        const ChannelShape& shape) {
  if (core_ == nullptr) return error(Code::kInvalidUsage, "ucx: a channel opened after close");
  TRY(core_->status());
  if (key.reader == kEveryone) {
    return error(Code::kInvalidArgument, "ucx: channel {} with several readers", key.number);
  }
  if (key.number > kMaxChannelNumber || shape.slots < 2 || shape.slots > kMaxSlots ||
      shape.slice_bytes < 1 || shape.slice_bytes > kMaxSliceBytes) {
    return error(Code::kInvalidArgument, "ucx: channel {} of {} slots of {} B", key.number,
                 shape.slots, shape.slice_bytes);
  }
  if (!reaches(peer)) {
    return error(Code::kInvalidArgument, "ucx: no link to rank {} from rank {}", peer,
                 context_.rank);
  }
  Link& link = core_->link(peer);
  if (Status opened = link.open(); !opened.ok()) core_->suspect(opened);  // it was there at init
  return &link;
}

Result<SendEnd*> UcxTransport::open_send(const ChannelKey& key, const ChannelShape& shape) {
  if (key.writer != context_.rank) {
    return error(Code::kInvalidArgument, "ucx: rank {} opened the send end of rank {}",
                 context_.rank, key.writer);
  }
  TRY_ASSIGN(Link * link, usable_link(key, key.reader, shape));
  TRY_ASSIGN(SendEnd * end, link->open_send(static_cast<uint8_t>(key.number), shape));
  return end;
}

Result<RecvEnd*> UcxTransport::open_recv(const ChannelKey& key, const ChannelShape& shape) {
  if (key.reader != context_.rank && key.reader != kEveryone) {
    return error(Code::kInvalidArgument, "ucx: rank {} opened the receive end of rank {}",
                 context_.rank, key.reader);
  }
  TRY_ASSIGN(Link * link, usable_link(key, key.writer, shape));
  TRY_ASSIGN(RecvEnd * end, link->open_recv(static_cast<uint8_t>(key.number), shape));
  return end;
}

void UcxTransport::close() {
  if (core_ == nullptr) return;
  context_.waiter->remove_fd(core_->efd());
  // Operations are over only when their sends are: what still reads memory of its caller belongs to
  // one that failed.
  core_->shut_borrowing();
  const int64_t deadline_ns = context_.env->now_ns() + kFlushNs;
  core_->flush(deadline_ns);
  // Behind everything else: rendezvous could be overtaken.
  core_->say_farewells();
  core_->flush(deadline_ns);
  last_status_ = core_->status();
  if (context_.endpoint != nullptr && last_status_.ok() && !core_->deserted()) {
    linger(context_.endpoint->loop(), std::move(core_));
  }
  core_.reset();
}

}  // namespace
}  // namespace ucx

Status ucx_available(std::string* detail) {
  TRY_ASSIGN(const ucx::Library* library, ucx::load_library());
  if (detail == nullptr) return {};
  const std::string devices = ucx::rdma_devices();
  *detail = fmt::format("UCX {}; {}", library->ucp_get_version_string(),
                        devices.empty() ? "no RDMA device: only when named" : devices);
  return {};
}

bool ucx_preferred() {
  return !ucx::rdma_devices().empty() && ucx::load_library().ok();
}

Result<std::unique_ptr<Transport>> make_ucx_transport(const TransportContext& context) {
  if (context.env == nullptr || context.waiter == nullptr) {
    return error(Code::kInvalidUsage, "ucx: needs an environment and a waiter");
  }
  TRY(ucx_available(nullptr));
  TRY_ASSIGN(const ucx::Options options, ucx::parse_options(context.options));
  TRY_ASSIGN(std::unique_ptr<ucx::Core> core, ucx::Core::create(context, options));
  auto transport = std::make_unique<ucx::UcxTransport>(context, std::move(core));
  TRY(transport->watch());
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace unisono
