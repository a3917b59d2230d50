#include "transports/sim/sim_transport.h"

#include <charconv>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "transports/sim/sim_env.h"
#include "transports/sim/sim_world.h"

namespace unisono {
namespace {

using Lock = SimScheduler::Lock;
using EventKind = SimScheduler::EventKind;

class SimTransport final : public Transport {
 public:
  SimTransport(std::shared_ptr<SimCore> core, const TransportContext& context, SimSignal& signal,
               int32_t world_rank);
  ~SimTransport() override { close(); }
  const TransportCaps& caps() const override { return caps_; }
  std::string address() const override;
  Status connect(std::span<const std::string> addresses) override;
  bool reaches(int32_t peer) const override;
  bool ready() const override { return true; }
  Result<SendEnd*> open_send(const ChannelKey& key, const ChannelShape& shape) override;
  Result<RecvEnd*> open_recv(const ChannelKey& key, const ChannelShape& shape) override;
  Result<uint64_t> register_memory(const Region& region) override;
  void deregister_memory(uint64_t registration) override;
  bool progress() override;
  bool arm() override;
  void disarm() override {}
  Status status() const override;
  bool peer_left(int32_t peer) const override;
  size_t memory_bytes() const override;
  void close() override;

 private:
  Status check(const ChannelKey& key, const ChannelShape& shape) const;
  Result<std::shared_ptr<SimChannel>> find_channel(const ChannelKey& key,
                                                   const ChannelShape& shape);
  void drop_channels();

  const std::shared_ptr<SimCore> core_;
  SimScheduler& scheduler_;
  const int32_t ranks_;
  TransportCaps caps_;
  SimPort port_;
  uint64_t last_registration_ = 0;
  std::map<ChannelKey, std::unique_ptr<SimSendEnd>> sends_;
  std::map<ChannelKey, std::unique_ptr<SimRecvEnd>> receives_;
  bool connected_ = false;
  bool closed_ = false;
};

SimTransport::SimTransport(std::shared_ptr<SimCore> core, const TransportContext& context,
                           SimSignal& signal, int32_t world_rank)
    : core_(std::move(core)), scheduler_(*core_->scheduler), ranks_(context.ranks) {
  const SimOptions& options = scheduler_.options();
  caps_.name = "sim";
  caps_.multicast = true;
  caps_.by_reference = true;
  caps_.prefers_reserve = true;
  caps_.same_memory = true;
  caps_.latency_us = static_cast<double>(options.latency_ns + options.overhead_ns) * 1e-3;
  caps_.gigabytes_per_s = options.gigabytes_per_s;
  const auto count = static_cast<size_t>(ranks_);
  port_.world_rank = world_rank;
  port_.rank = context.rank;
  port_.peers.assign(count, 0);
  port_.left.assign(count, false);
  port_.wire_free_ns.assign(count, 0);
  port_.last_arrival_ns.assign(count, 0);
  port_.signal = &signal;
  Lock lock(scheduler_.mutex);
  port_.id = ++core_->last_port;
  core_->ports[port_.id] = &port_;
  ++core_->open_transports[static_cast<size_t>(world_rank)];
  if (core_->killed[static_cast<size_t>(world_rank)]) {
    port_.status = error(Code::kRemoteError, "rank {} died", context.rank);
  } else {
    scheduler_.set_absent(world_rank, false);
  }
}

std::string SimTransport::address() const {
  return fmt::format("sim/{}/{}", core_->nonce, port_.id);
}

Status SimTransport::connect(std::span<const std::string> addresses) {
  if (connected_ || addresses.size() != static_cast<size_t>(ranks_)) {
    return error(Code::kInvalidUsage, "sim: connect wants {} addresses, once", ranks_);
  }
  const std::string prefix = fmt::format("sim/{}/", core_->nonce);
  Lock lock(scheduler_.mutex);
  for (size_t r = 0; r < addresses.size(); ++r) {
    const std::string& text = addresses[r];
    if (r == static_cast<size_t>(port_.rank) || text.empty()) continue;
    uint64_t id = 0;
    const char* end = text.data() + text.size();
    if (!text.starts_with(prefix) ||
        std::from_chars(text.data() + prefix.size(), end, id).ptr != end || id == 0 ||
        id > core_->last_port || id == port_.id) {
      return error(Code::kRemoteError, "sim: rank {}'s address is not one of this world", r);
    }
    port_.peers[r] = id;
  }
  connected_ = true;
  return ok_status();
}

bool SimTransport::reaches(int32_t peer) const {
  return peer >= 0 && peer < ranks_ && port_.peers[static_cast<size_t>(peer)] != 0;
}

Status SimTransport::check(const ChannelKey& key, const ChannelShape& shape) const {
  if (!connected_ || closed_) return error(Code::kInvalidUsage, "sim: not connected");
  if (key.number > kMaxChannelNumber || key.writer < 0 || key.writer >= ranks_ ||
      (key.reader != kEveryone && (key.reader < 0 || key.reader >= ranks_)) ||
      key.reader == key.writer) {
    return error(Code::kInvalidArgument, "sim: no channel {} from rank {} to {}", key.number,
                 key.writer, key.reader);
  }
  if (shape.slots < 2 || shape.slice_bytes == 0 || shape.slice_bytes > kMaxSliceBytes) {
    return error(Code::kInvalidArgument, "sim: {} slots of {} bytes are no channel", shape.slots,
                 shape.slice_bytes);
  }
  for (int32_t r = 0; r < ranks_; ++r) {
    const bool member = key.reader == kEveryone || r == key.reader || r == key.writer;
    if (member && r != port_.rank && !reaches(r)) {
      return error(Code::kRemoteError, "sim: rank {} cannot be reached", r);
    }
  }
  return ok_status();
}

// Whoever opens an end first makes the channel.
Result<std::shared_ptr<SimChannel>> SimTransport::find_channel(const ChannelKey& key,
                                                               const ChannelShape& shape) {
  auto port_of = [this](int32_t rank) {
    return rank == port_.rank ? port_.id : port_.peers[static_cast<size_t>(rank)];
  };
  Lock lock(scheduler_.mutex);
  auto& channel = core_->channels[SimChannelKey(port_of(key.writer), key.number, key.reader)];
  if (channel == nullptr) {
    channel = std::make_shared<SimChannel>();
    channel->shape = shape;
    channel->writer_rank = key.writer;
    channel->writer_port = port_of(key.writer);
    channel->slots.resize(shape.slots);
    for (int32_t r = 0; r < ranks_; ++r) {
      if (r == key.writer || (key.reader != kEveryone && r != key.reader)) continue;
      channel->readers.emplace_back();
      channel->readers.back().rank = r;
      channel->readers.back().port = port_of(r);
    }
  } else if (channel->shape.slice_bytes != shape.slice_bytes ||
             channel->shape.slots != shape.slots) {
    return error(Code::kInvalidArgument,
                 "sim: channel {} from rank {} to {} has {} slots of {} bytes, not {} of {}",
                 key.number, key.writer, key.reader, channel->shape.slots,
                 channel->shape.slice_bytes, shape.slots, shape.slice_bytes);
  }
  return channel;
}

Result<SendEnd*> SimTransport::open_send(const ChannelKey& key, const ChannelShape& shape) {
  TRY(check(key, shape));
  if (key.writer != port_.rank) {
    return error(Code::kInvalidArgument, "sim: rank {} does not write that channel", port_.rank);
  }
  TRY_ASSIGN(std::shared_ptr<SimChannel> channel, find_channel(key, shape));
  auto& end = sends_[key];
  if (end == nullptr) end = std::make_unique<SimSendEnd>(*core_, port_, std::move(channel));
  return static_cast<SendEnd*>(end.get());
}

Result<RecvEnd*> SimTransport::open_recv(const ChannelKey& key, const ChannelShape& shape) {
  TRY(check(key, shape));
  if (key.writer == port_.rank || (key.reader != kEveryone && key.reader != port_.rank)) {
    return error(Code::kInvalidArgument, "sim: rank {} does not read that channel", port_.rank);
  }
  TRY_ASSIGN(std::shared_ptr<SimChannel> channel, find_channel(key, shape));
  size_t reader = 0;
  while (channel->readers[reader].rank != port_.rank) ++reader;
  auto& end = receives_[key];
  if (end == nullptr) {
    end = std::make_unique<SimRecvEnd>(*core_, port_, std::move(channel), reader);
  }
  return static_cast<RecvEnd*>(end.get());
}

Result<uint64_t> SimTransport::register_memory(const Region& region) {
  if (region.address == nullptr && region.bytes > 0) {
    return error(Code::kInvalidArgument, "sim: a region has no address");
  }
  Lock lock(scheduler_.mutex);
  port_.regions[++last_registration_] = region;
  return last_registration_;
}

void SimTransport::deregister_memory(uint64_t registration) {
  Lock lock(scheduler_.mutex);
  port_.regions.erase(registration);
}

bool SimTransport::progress() {
  Lock lock(scheduler_.mutex);
  return std::exchange(port_.changed, false);
}

// Deliveries notify whether armed or not, and only happen while this rank's thread is blocked.
bool SimTransport::arm() {
  Lock lock(scheduler_.mutex);
  return port_.changed;
}

Status SimTransport::status() const {
  Lock lock(scheduler_.mutex);
  return port_.status;
}

bool SimTransport::peer_left(int32_t peer) const {
  Lock lock(scheduler_.mutex);
  return peer >= 0 && peer < ranks_ && port_.left[static_cast<size_t>(peer)];
}

size_t SimTransport::memory_bytes() const {
  Lock lock(scheduler_.mutex);
  size_t sum = 0;
  for (const auto& [key, end] : sends_) sum += end->channel().memory_bytes();
  return sum;
}

void SimTransport::close() {
  if (closed_) return;
  closed_ = true;
  Lock lock(scheduler_.mutex);
  core_->ports.erase(port_.id);
  const bool dead = core_->killed[static_cast<size_t>(port_.world_rank)];
  for (size_t r = 0; r < port_.peers.size() && !dead; ++r) {
    if (port_.peers[r] == 0) continue;
    // The farewell follows the last message of every channel to that rank.
    const int64_t arrival = std::max(scheduler_.now_ns() + core_->latency_ns(port_.world_rank),
                                     port_.last_arrival_ns[r]);
    scheduler_.add_event(arrival, port_.world_rank, EventKind::kMessage,
                         [core = core_.get(), to = port_.peers[r], from = port_.rank](Lock&) {
                           SimPort* port = core->port(to);
                           if (port == nullptr) return;
                           port->left[static_cast<size_t>(from)] = true;
                           port->touch(*core->scheduler);
                         });
  }
  for (auto& [key, end] : sends_) end->give_up_posted();
  drop_channels();
  if (--core_->open_transports[static_cast<size_t>(port_.world_rank)] == 0) {
    scheduler_.set_absent(port_.world_rank, true);
  }
}

// Forgets the channels that nobody is left to use. Messages on their way hold theirs.
void SimTransport::drop_channels() {
  std::erase_if(core_->channels, [this](const auto& entry) {
    const SimChannel& channel = *entry.second;
    if (core_->port(channel.writer_port) != nullptr) return false;
    for (const SimChannel::Reader& reader : channel.readers) {
      if (core_->port(reader.port) != nullptr) return false;
    }
    return true;
  });
}

}  // namespace

Result<std::unique_ptr<Transport>> make_sim_transport(const TransportContext& context) {
  auto* world = dynamic_cast<SimWorld*>(context.world.get());
  if (world == nullptr) {
    return error(Code::kInvalidUsage,
                 "transports: sim needs all ranks in one process, made by uniCommInitAll");
  }
  auto* waiter = dynamic_cast<SimWaiter*>(context.waiter);
  if (waiter == nullptr || context.rank < 0 || context.rank >= context.ranks ||
      context.ranks != world->ranks()) {
    return error(Code::kInternalError, "sim: rank {} of {} does not fit a world of {}",
                 context.rank, context.ranks, world->ranks());
  }
  return std::unique_ptr<Transport>(std::make_unique<SimTransport>(
      world->core(), context, waiter->signal(), world->world_rank(context.rank)));
}

}  // namespace unisono
