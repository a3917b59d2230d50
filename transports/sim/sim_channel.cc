#include "transports/sim/sim_channel.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "transports/sim/sim_core.h"

namespace unisono {

using Lock = SimScheduler::Lock;
using EventKind = SimScheduler::EventKind;

uint64_t SimChannel::credited() const {
  uint64_t least = UINT64_MAX;
  for (const Reader& reader : readers) least = std::min(least, reader.credited);
  return least;
}

std::byte* SimChannel::slot_bytes(uint64_t message) {
  Slot& slot = this->slot(message);
  if (slot.bytes == nullptr) {
    slot.bytes.reset(static_cast<std::byte*>(
        ::operator new[](std::max<size_t>(shape.slice_bytes, 1), std::align_val_t(64))));
  }
  return slot.bytes.get();
}

size_t SimChannel::memory_bytes() const {
  size_t sum = 0;
  for (const Slot& slot : slots) sum += slot.bytes == nullptr ? 0 : shape.slice_bytes;
  return sum;
}

SimSendEnd::SimSendEnd(SimCore& core, SimPort& port, std::shared_ptr<SimChannel> channel)
    : core_(core), port_(port), channel_(std::move(channel)) {}

SendOutcome SimSendEnd::send(const MessageHeader& header, const void* data) {
  if (core_.scheduler->options().late) return post(header, data);
  std::byte* slot = reserve();
  if (slot == nullptr) return SendOutcome::kAgain;
  if (header.bytes > 0) std::memcpy(slot, data, header.bytes);
  commit(header);
  return SendOutcome::kDone;
}

SendOutcome SimSendEnd::send_reference(const MessageHeader& header, const void* data,
                                       uint64_t registration) {
  {
    Lock lock(core_.scheduler->mutex);
    auto found = port_.regions.find(registration);
    CHECK(found != port_.regions.end());
    const auto* begin = static_cast<const std::byte*>(found->second.address);
    const auto* from = static_cast<const std::byte*>(data);
    CHECK(from >= begin && from + header.bytes <= begin + found->second.bytes);
  }
  return post(header, data);
}

// The message stays in the caller's memory, where readers find it whenever they look.
SendOutcome SimSendEnd::post(const MessageHeader& header, const void* data) {
  core_.scheduler->acquire();
  Lock lock(core_.scheduler->mutex);
  if (!port_.status.ok() || !channel_->has_credit()) return SendOutcome::kAgain;
  channel_->posted.push_back(channel_->sent);
  dispatch(header, static_cast<const std::byte*>(data));
  return SendOutcome::kPosted;
}

std::byte* SimSendEnd::reserve() {
  core_.scheduler->acquire();
  Lock lock(core_.scheduler->mutex);
  if (!port_.status.ok() || !channel_->has_credit()) return nullptr;
  return channel_->slot_bytes(channel_->sent);
}

void SimSendEnd::commit(const MessageHeader& header) {
  Lock lock(core_.scheduler->mutex);
  if (!port_.status.ok()) return;  // failed since reserve
  CHECK(channel_->has_credit());
  dispatch(header, channel_->slot_bytes(channel_->sent));
}

void SimSendEnd::dispatch(const MessageHeader& header, const std::byte* data) {
  CHECK(header.bytes <= channel_->shape.slice_bytes);
  SimChannel::Slot& slot = channel_->slot(channel_->sent++);
  slot.header = header;
  slot.data = data;
  for (size_t r = 0; r < channel_->readers.size(); ++r) {
    SimChannel::Reader& reader = channel_->readers[r];
    const auto to = static_cast<size_t>(reader.rank);
    const int64_t arrival =
        std::max(core_.arrival_ns(port_.world_rank, header.bytes, &port_.wire_free_ns[to]),
                 reader.last_arrival_ns);
    reader.last_arrival_ns = arrival;
    port_.last_arrival_ns[to] = std::max(port_.last_arrival_ns[to], arrival);
    core_.scheduler->add_event(arrival, port_.world_rank, EventKind::kMessage,
                               [channel = channel_, core = &core_, r](Lock&) {
                                 SimChannel::Reader& at = channel->readers[r];
                                 ++at.arrived;
                                 if (SimPort* port = core->port(at.port)) {
                                   port->touch(*core->scheduler);
                                 }
                               });
  }
}

void SimSendEnd::give_up_posted() {
  uint64_t released = UINT64_MAX;  // by all; news of it may still be on its way
  for (const SimChannel::Reader& reader : channel_->readers) {
    released = std::min(released, reader.released);
  }
  for (const uint64_t message : channel_->posted) {
    if (message < released) continue;
    channel_->given_up_at = message;
    return;
  }
}

uint64_t SimSendEnd::accepted() const {
  Lock lock(core_.scheduler->mutex);
  return channel_->sent;
}

uint64_t SimSendEnd::completed() const {
  Lock lock(core_.scheduler->mutex);
  const uint64_t credited = channel_->credited();
  while (!channel_->posted.empty() && channel_->posted.front() < credited) {
    channel_->posted.pop_front();
  }
  return channel_->posted.empty() ? channel_->sent : channel_->posted.front();
}

SimRecvEnd::SimRecvEnd(SimCore& core, SimPort& port, std::shared_ptr<SimChannel> channel,
                       size_t reader)
    : core_(core), port_(port), channel_(std::move(channel)), reader_(reader) {}

bool SimRecvEnd::lend(Message* message) {
  core_.scheduler->acquire();
  Lock lock(core_.scheduler->mutex);
  const SimChannel::Reader& reader = channel_->readers[reader_];
  if (!port_.status.ok() || reader.arrived == reader.released) return false;
  if (reader.released >= channel_->given_up_at) return false;
  const SimChannel::Slot& slot = channel_->slot(reader.released);
  message->header = slot.header;
  message->data = slot.data;
  return true;
}

void SimRecvEnd::release() {
  Lock lock(core_.scheduler->mutex);
  SimChannel::Reader& reader = channel_->readers[reader_];
  if (!port_.status.ok()) return;  // nobody waits for the credit any more
  CHECK(reader.arrived > reader.released);
  ++reader.released;
  // The credit travels as a message does, and does not overtake the one before.
  reader.last_credit_ns = std::max(core_.scheduler->now_ns() + core_.latency_ns(port_.world_rank),
                                   reader.last_credit_ns);
  core_.scheduler->add_event(reader.last_credit_ns, port_.world_rank, EventKind::kMessage,
                             [channel = channel_, core = &core_, r = reader_](Lock&) {
                               ++channel->readers[r].credited;
                               if (SimPort* port = core->port(channel->writer_port)) {
                                 port->touch(*core->scheduler);
                               }
                             });
}

}  // namespace unisono
