#include "transports/tcp/peer_link.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace unisono::tcp {

PeerLink::PeerLink(int32_t peer, int sockets, LinkState& state) : peer_(peer), state_(state) {
  for (int i = 0; i < sockets; ++i) streams_.push_back(std::make_unique<Stream>(*this));
}

bool PeerLink::attach(net::Fd fd) {
  const auto next = std::find_if(streams_.begin(), streams_.end(),
                                 [](const auto& stream) { return !stream->was_up(); });
  if (next == streams_.end()) return false;
  Status attached = (*next)->attach(std::move(fd));
  if (!attached.ok()) fail(attached.annotate(fmt::format("tcp: link to rank {}", peer_)));
  return true;
}

bool PeerLink::up() const {
  return std::any_of(streams_.begin(), streams_.end(), [](const auto& one) { return one->up(); });
}

bool PeerLink::idle() const {
  return std::all_of(streams_.begin(), streams_.end(), [](const auto& one) { return one->idle(); });
}

bool PeerLink::peer_left() const {
  int count = 0;
  for (const auto& stream : streams_) count += stream->farewell_received() ? 1 : 0;
  return count > 0 && count >= farewells_due_;
}

bool PeerLink::accepts() const {
  return state_.status.ok() && farewells_due_ == 0 && !farewell_said_;
}

Result<SendChannel*> PeerLink::open_send(uint8_t number, const ChannelShape& shape) {
  auto& sender = senders_[number];
  if (sender == nullptr) sender = std::make_unique<SendChannel>(*this, number, shape);
  if (sender->shape().slots != shape.slots || sender->shape().slice_bytes != shape.slice_bytes) {
    return error(Code::kInvalidArgument, "tcp: channel {} to rank {} was opened in another shape",
                 number, peer_);
  }
  return sender.get();
}

Result<RecvChannel*> PeerLink::open_recv(uint8_t number, const ChannelShape& shape) {
  auto& receiver = receivers_[number];
  if (receiver == nullptr) receiver = std::make_unique<RecvChannel>(*this, number);
  if (!receiver->opened()) {
    const uint64_t bytes = receiver->held_bytes(), messages = receiver->held_messages();
    if (Status opened = receiver->open(shape); !opened.ok()) {
      fail(opened.annotate(fmt::format("tcp: rank {}", peer_)));
      return state_.status;
    }
    unopened_bytes_ -= bytes;
    unopened_messages_ -= messages;
  }
  const ChannelShape& agreed = receiver->shape();
  if (agreed.slots != shape.slots || agreed.slice_bytes != shape.slice_bytes) {
    return error(Code::kInvalidArgument, "tcp: channel {} of rank {} was opened in another shape",
                 number, peer_);
  }
  return receiver.get();
}

Status PeerLink::charge_unopened(uint32_t bytes) {
  unopened_bytes_ += bytes;
  if (unopened_bytes_ > kMaxUnopenedBytes || ++unopened_messages_ > kMaxUnopenedMessages) {
    return error(Code::kRemoteError, "{} B sent on channels that were never opened here",
                 unopened_bytes_);
  }
  return {};
}

bool PeerLink::progress() {
  if (!state_.status.ok()) return false;
  bool moved = false;
  for (const auto& stream : streams_) {
    moved |= stream->progress();
    if (!state_.status.ok()) return true;
  }
  if (credit_due_ && first().up()) {
    report_credits(false);
    if (!first().idle()) moved |= first().flush();
  }
  return moved;
}

void PeerLink::arm() {
  if (!state_.status.ok()) return;
  if (!owing_.empty() && first().up()) {
    report_credits(true);
    first().flush();
  }
  for (const auto& stream : streams_) stream->arm();
}

Status PeerLink::handle(const FrameHeader& frame, Arriving* message) {
  if (frame.has_credit) {
    SendChannel* sender = senders_[frame.credit_channel].get();
    if (sender == nullptr) {
      return error(Code::kRemoteError, "malformed stream: credit for channel {}, never used",
                   frame.credit_channel);
    }
    TRY(sender->credit(frame.released));
  }
  if (frame.kind == FrameKind::kFarewell) {
    if (frame.channel >= streams_.size()) {
      return error(Code::kRemoteError, "malformed stream: a farewell on {} sockets of {}",
                   frame.channel + 1, streams_.size());
    }
    farewells_due_ = std::max(farewells_due_, frame.channel + 1);
  }
  if (frame.kind != FrameKind::kData) return {};
  auto& receiver = receivers_[frame.channel];
  if (receiver == nullptr) receiver = std::make_unique<RecvChannel>(*this, frame.channel);
  message->channel = receiver.get();
  return receiver->begin(frame, streams_.size() == 1, &message->index);
}

// Short messages keep to the first socket; a long one takes the emptiest, in turn where several
// are.
Stream& PeerLink::stream_for(uint32_t bytes) {
  if (streams_.size() == 1 || bytes < kSpreadBytes) return first();
  Stream* best = &first();
  for (size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = *streams_[(turn_ + i) % streams_.size()];
    if (!stream.up() || stream.output_failed()) continue;
    if (!best->up() || stream.queued_bytes() < best->queued_bytes() || i == 0) best = &stream;
  }
  ++turn_;
  return *best;
}

bool PeerLink::send(SendChannel& channel, const MessageHeader& header, const std::byte* data,
                    Ownership ownership) {
  Stream& stream = stream_for(header.bytes);
  FrameHeader frame;
  frame.kind = FrameKind::kData;
  frame.channel = channel.number();
  frame.bytes = header.bytes;
  frame.fingerprint = header.fingerprint;
  const uint64_t index = channel.accept();
  frame.sequence = static_cast<uint32_t>(index);
  if (&stream == &first()) take_credit(&frame);
  std::array<std::byte, kFrameBytes> head;
  encode_frame(frame, head);
  const size_t done = stream.write(head, data, header.bytes);
  if (done == kFrameBytes + header.bytes) {
    channel.wrote(index, false);
    channel.settle();
    return true;
  }
  stream.enqueue({.head = head,
                  .data = data,
                  .bytes = header.bytes,
                  .callers = ownership == Ownership::kCaller,
                  .channel = &channel,
                  .index = index,
                  .done = done});
  const bool free = ownership == Ownership::kSlot || header.bytes <= kCopyBytes;
  if (free) channel.settle();
  return free;
}

// ---- credit ----

void PeerLink::owe(RecvChannel& channel) {
  if (!channel.owing) {
    channel.owing = true;
    owing_.push_back(&channel);
  }
  if (channel.unreported() * 2 >= channel.shape().slots) credit_due_ = true;
}

void PeerLink::take_credit(FrameHeader* frame) {
  if (owing_.empty()) return;
  RecvChannel* channel = owing_.back();
  owing_.pop_back();
  channel->owing = false;
  channel->reported();
  frame->has_credit = true;
  frame->credit_channel = channel->number();
  frame->released = static_cast<uint32_t>(channel->released());
  if (owing_.empty()) credit_due_ = false;
}

void PeerLink::report_credits(bool all) {
  credit_due_ = false;
  if (!accepts()) return owing_.clear();  // the peer asks for no more
  // Those that are not urgent wait for a message that takes them along.
  const auto urgent = [all](const RecvChannel* channel) {
    return all || channel->unreported() * 2 >= channel->shape().slots;
  };
  const auto later = std::partition(owing_.begin(), owing_.end(),
                                    [&](const RecvChannel* channel) { return !urgent(channel); });
  for (size_t count = static_cast<size_t>(owing_.end() - later); count > 0; --count) {
    FrameHeader frame;
    frame.kind = FrameKind::kCredit;
    take_credit(&frame);
    Stream::Outgoing out;
    encode_frame(frame, out.head);
    out.done = first().write(out.head, nullptr, 0);
    if (out.unsent() > 0) first().enqueue(std::move(out));
  }
}

// ---- the end ----

void PeerLink::give_up_borrowed() {
  bool any = false;
  for (const auto& stream : streams_) any |= stream->give_up_borrowed();
  if (any) log_info("tcp: closing with messages to rank {} unsent", peer_);
}

void PeerLink::say_farewell() {
  if (farewell_said_) return;
  const auto usable = [](const auto& one) { return one->up() && !one->output_failed(); };
  const auto count = std::count_if(streams_.begin(), streams_.end(), usable);
  for (const auto& stream : streams_) {
    if (!usable(stream)) continue;
    FrameHeader frame;
    frame.kind = FrameKind::kFarewell;
    frame.channel = static_cast<uint8_t>(count - 1);
    if (stream.get() == &first()) take_credit(&frame);
    Stream::Outgoing out;
    encode_frame(frame, out.head);
    stream->say_farewell(std::move(out));
    farewell_said_ = true;
  }
}

size_t PeerLink::unsent_messages() const {
  size_t count = 0;
  for (const auto& stream : streams_) count += stream->unsent_messages();
  return count;
}

void PeerLink::mute() {
  for (const auto& stream : streams_) stream->mute();
}

void PeerLink::fail(Status failure) {
  state_.fail(std::move(failure));
  for (const auto& stream : streams_) stream->close_socket();
}

}  // namespace unisono::tcp
