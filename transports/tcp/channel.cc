#include "transports/tcp/channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transports/tcp/peer_link.h"

namespace unisono::tcp {

SendChannel::SendChannel(PeerLink& link, uint8_t number, const ChannelShape& shape)
    : link_(link), number_(number), shape_(shape) {}

SendOutcome SendChannel::send(const MessageHeader& header, const void* data) {
  CHECK(header.bytes <= shape_.slice_bytes);
  if (!has_credit() || !link_.accepts()) return SendOutcome::kAgain;
  return link_.send(*this, header, static_cast<const std::byte*>(data), Ownership::kCaller)
             ? SendOutcome::kDone
             : SendOutcome::kPosted;
}

// The slot of message i is that of message i - slots, which the reader has released: so it was
// written long ago.
std::byte* SendChannel::reserve() {
  if (!has_credit() || !link_.accepts()) return nullptr;
  if (slots_.empty()) slots_.resize(shape_.slots);
  return slots_[accepted_ % shape_.slots].ensure(shape_.slice_bytes, link_.state().memory_bytes);
}

void SendChannel::commit(const MessageHeader& header) {
  CHECK(header.bytes <= shape_.slice_bytes && !slots_.empty() && has_credit());
  const std::byte* data = slots_[accepted_ % shape_.slots].data();
  CHECK(data != nullptr);
  (void)link_.send(*this, header, data, Ownership::kSlot);
}

Status SendChannel::credit(uint32_t released) {
  const uint32_t more = released - static_cast<uint32_t>(released_);
  if (more > written_ - released_) {
    return error(Code::kRemoteError, "credit for {} messages of channel {} where {} were sent",
                 released_ + more, number_, written_);
  }
  released_ += more;
  return {};
}

void SendChannel::wrote(uint64_t index, bool borrowed) {
  if (index == written_) {
    ++written_;
    while (early_count_ > 0 && early_[written_ % shape_.slots]) {
      early_[written_ % shape_.slots] = false;
      --early_count_;
      ++written_;
    }
  } else {
    if (early_.empty()) early_.resize(shape_.slots);
    early_[index % shape_.slots] = true;
    ++early_count_;
  }
  if (borrowed) --borrowed_;
  completed_ = borrowed_ == 0 ? accepted_ : std::max(completed_, written_);
}

RecvChannel::RecvChannel(PeerLink& link, uint8_t number) : link_(link), number_(number) {}

Status RecvChannel::open(const ChannelShape& shape) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].data == nullptr) continue;
    if (i >= shape.slots) {
      return error(Code::kRemoteError, "{} messages on channel {} of {} slots", i + 1, number_,
                   shape.slots);
    }
    if (slots_[i].header.bytes > shape.slice_bytes) {
      return error(Code::kRemoteError, "a message of {} B on channel {} with slices of {} B",
                   slots_[i].header.bytes, number_, shape.slice_bytes);
    }
  }
  slots_.resize(shape.slots);
  shape_ = shape;
  return {};
}

// Which message of the channel a frame brings, and that there is an empty slot for it.
Status RecvChannel::find_slot(const FrameHeader& header, bool in_order, uint64_t* index) {
  const auto ahead = static_cast<int32_t>(header.sequence - static_cast<uint32_t>(received_));
  if (ahead < 0 || (in_order && ahead != 0)) {
    return error(Code::kRemoteError, "message {} of channel {} where {} was due", header.sequence,
                 number_, received_);
  }
  *index = received_ + static_cast<uint32_t>(ahead);
  if (opened()) {
    if (*index - released_ >= shape_.slots) {
      return error(Code::kRemoteError, "a message beyond the {} slots of channel {}", shape_.slots,
                   number_);
    }
  } else {
    if (*index >= kMaxUnopenedMessages) {
      return error(Code::kRemoteError, "message {} of channel {}, which was never opened here",
                   header.sequence, number_);
    }
    if (*index >= slots_.size()) slots_.resize(*index + 1);
  }
  if (slot(*index).data != nullptr) {
    return error(Code::kRemoteError, "message {} of channel {} twice", header.sequence, number_);
  }
  return {};
}

Status RecvChannel::begin(const FrameHeader& header, bool in_order, uint64_t* index) {
  if (header.everyone) {
    return error(Code::kRemoteError, "a message to everyone on channel {}", header.channel);
  }
  TRY(find_slot(header, in_order, index));
  if (!opened()) {
    TRY(link_.charge_unopened(header.bytes));
  } else if (header.bytes > shape_.slice_bytes) {
    return error(Code::kRemoteError, "a message of {} B on channel {} with slices of {} B",
                 header.bytes, number_, shape_.slice_bytes);
  }
  Slot& into = slot(*index);
  into.header = {header.fingerprint, header.bytes};
  into.arrived = 0;
  into.whole = false;
  size_t& total = link_.state().memory_bytes;
  // Only the message that the next lend will show may land in the posted buffer.
  if (post_buffer_ != nullptr && *index == released_ && header.bytes == post_bytes_) {
    into.data = post_buffer_;
  } else if (opened()) {
    into.data = into.memory.ensure_slot(header.bytes, shape_.slice_bytes, total);
  } else {
    into.data = into.memory.ensure(std::max<uint32_t>(header.bytes, 64), total);
  }
  return {};
}

std::byte* RecvChannel::landing(uint64_t index) {
  Slot& into = slot(index);
  std::byte* start = into.data == post_buffer_ ? post_buffer_ : into.memory.data();
  return start + into.arrived;
}

void RecvChannel::finish(uint64_t index) {
  slot(index).whole = true;
  while (received_ - released_ < slots_.size() && slot(received_).whole) ++received_;
}

bool RecvChannel::lend(Message* message) {
  if (received_ == released_) return false;
  const Slot& from = slot(released_);
  message->header = from.header;
  message->data = from.data;
  if (!lent_) {
    lent_ = true;
    post_buffer_ = nullptr;  // served by this message, or of no use to it
  }
  return true;
}

void RecvChannel::release() {
  CHECK(lent_);
  lent_ = false;
  Slot& from = slot(released_);
  from.data = nullptr;
  from.whole = false;
  ++released_;
  link_.owe(*this);
}

void RecvChannel::post(void* buffer, uint32_t bytes) {
  if (lent_) return;
  if (post_buffer_ != nullptr) reclaim_post();
  post_buffer_ = static_cast<std::byte*>(buffer);
  post_bytes_ = bytes;
}

void RecvChannel::cancel_post() {
  if (post_buffer_ != nullptr) reclaim_post();
}

// The posted buffer goes back to its owner: what has landed there moves to the message's slot.
void RecvChannel::reclaim_post() {
  if (!slots_.empty() && slot(released_).data == post_buffer_) {
    Slot& into = slot(released_);
    std::byte* own =
        into.memory.ensure_slot(into.header.bytes, shape_.slice_bytes, link_.state().memory_bytes);
    std::memcpy(own, post_buffer_, into.arrived);
    into.data = own;
  }
  post_buffer_ = nullptr;
}

uint64_t RecvChannel::held_messages() const {
  return static_cast<uint64_t>(std::count_if(slots_.begin(), slots_.end(),
                                             [](const Slot& one) { return one.data != nullptr; }));
}

uint64_t RecvChannel::held_bytes() const {
  uint64_t sum = 0;
  for (const Slot& one : slots_) sum += one.data != nullptr ? one.header.bytes : 0;
  return sum;
}

}  // namespace unisono::tcp
