#include "transports/ucx/channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transports/ucx/core.h"
#include "transports/ucx/link.h"

namespace unisono::ucx {

// ---- the writer's end ----

SendChannel::SendChannel(Link& link, uint8_t number, const ChannelShape& shape)
    : link_(link), number_(number), shape_(shape), entries_(new Entry[shape.slots]) {
  for (uint32_t i = 0; i < shape.slots; ++i) entries_[i].channel = this;
}

// An entry is free again long before its slot is, as a rule.
bool SendChannel::can_send() const {
  return accepted_ - released_ < shape_.slots && !entry(accepted_).busy && link_.accepts();
}

SendOutcome SendChannel::send(const MessageHeader& header, const void* data) {
  CHECK(header.bytes <= shape_.slice_bytes);
  if (!can_send()) return SendOutcome::kAgain;
  return transmit(header, data, true) ? SendOutcome::kDone : SendOutcome::kPosted;
}

std::byte* SendChannel::reserve() {
  if (!can_send()) return nullptr;
  if (slots_ == nullptr) slots_ = std::make_unique<SlotMemory[]>(shape_.slots);
  return slots_[accepted_ % shape_.slots].ensure(std::max<uint32_t>(shape_.slice_bytes, 64),
                                                 link_.core().memory_bytes);
}

void SendChannel::commit(const MessageHeader& header) {
  CHECK(header.bytes <= shape_.slice_bytes && slots_ != nullptr && can_send());
  std::byte* data = slots_[accepted_ % shape_.slots].data();
  CHECK(data != nullptr);
  (void)transmit(header, data, false);
}

bool SendChannel::transmit(const MessageHeader& header, const void* data, bool callers) {
  Entry& at = entry(accepted_);
  Frame frame;
  frame.kind = FrameKind::kData;
  frame.channel = number_;
  frame.sequence = static_cast<uint32_t>(accepted_++);
  frame.fingerprint = header.fingerprint;
  link_.complete_frame(&frame);
  encode_frame(frame, std::span<std::byte, kFrameBytes>(at.bytes, kFrameBytes));
  at.busy = true;
  at.borrowed = false;
  Link::Sent sent;
  if (header.bytes <= kInlineBytes) {
    if (header.bytes > 0) std::memcpy(at.bytes + kFrameBytes, data, header.bytes);
    sent = link_.send(nullptr, 0, at.bytes, kFrameBytes + header.bytes, done, &at);
  } else {
    sent = link_.send(at.bytes, kFrameBytes, data, header.bytes, done, &at);
    at.borrowed = callers && sent == Link::Sent::kPending;
  }
  at.busy = sent == Link::Sent::kPending;
  if (at.borrowed) {
    ++borrowed_;
    link_.borrow(1);
  }
  if (borrowed_ == 0) completed_ = accepted_;
  return !at.borrowed;
}

void SendChannel::done(void* request, ucs_status_t status, void* user) {
  Entry& entry = *static_cast<Entry*>(user);
  SendChannel& self = *entry.channel;
  entry.busy = false;
  if (std::exchange(entry.borrowed, false)) {
    --self.borrowed_;
    self.link_.borrow(-1);
    while (self.completed_ < self.accepted_ && !self.entry(self.completed_).borrowed) {
      ++self.completed_;
    }
  }
  self.link_.send_is_over(request, status);
}

Status SendChannel::credit(uint32_t released) {
  const uint32_t more = released - static_cast<uint32_t>(released_);
  if (more > accepted_ - released_) {
    return error(Code::kRemoteError, "credit for {} messages of channel {} where {} were sent",
                 released_ + more, number_, accepted_);
  }
  released_ += more;
  return {};
}

// ---- the reader's end ----

RecvChannel::RecvChannel(Link& link, uint8_t number) : link_(link), number_(number) {}

void RecvChannel::drop_messages() {
  for (const auto& slot : slots_) {
    if (slot != nullptr) give_back(*slot);
  }
}

void RecvChannel::give_back(Slot& slot) {
  if (slot.held == nullptr) return;
  library().ucp_am_data_release(link_.core().worker(), std::exchange(slot.held, nullptr));
  slot.state = State::kEmpty;
}

Status RecvChannel::open(const ChannelShape& shape) {
  if (slots_.size() > shape.slots) {
    return error(Code::kRemoteError, "{} messages on channel {} of {} slots", slots_.size(),
                 number_, shape.slots);
  }
  for (const auto& slot : slots_) {
    if (slot != nullptr && slot->header.bytes > shape.slice_bytes) {
      return error(Code::kRemoteError, "a message of {} B on channel {} with slices of {} B",
                   slot->header.bytes, number_, shape.slice_bytes);
    }
  }
  slots_.resize(shape.slots);
  for (auto& slot : slots_) {
    if (slot == nullptr) slot = std::make_unique<Slot>(*this);
  }
  shape_ = shape;
  return {};
}

// The slot of a message that may come now. *next: it is the one that the next lend shows.
Status RecvChannel::place(uint32_t sequence, uint32_t bytes, Slot** found, bool* next) {
  const uint32_t ahead = sequence - static_cast<uint32_t>(released_);
  *next = ahead == 0;
  if (opened()) {
    if (ahead >= shape_.slots) {
      return error(Code::kRemoteError, "message {} of channel {} of {} slots, {} are released",
                   sequence, number_, shape_.slots, released_);
    }
    if (bytes > shape_.slice_bytes) {
      return error(Code::kRemoteError, "a message of {} B on channel {} with slices of {} B", bytes,
                   number_, shape_.slice_bytes);
    }
  } else {
    TRY(link_.charge_unopened(bytes));
    if (ahead >= kMaxUnopenedMessages) {
      return error(Code::kRemoteError, "message {} of channel {}, which was never opened here",
                   sequence, number_);
    }
    ++held_messages_;
    held_bytes_ += bytes;
    if (ahead >= slots_.size()) slots_.resize(ahead + 1);
    if (slots_[ahead] == nullptr) slots_[ahead] = std::make_unique<Slot>(*this);
  }
  *found = slot(released_ + ahead);
  if ((*found)->state != State::kEmpty) {
    return error(Code::kRemoteError, "message {} of channel {} came twice", sequence, number_);
  }
  return {};
}

Status RecvChannel::take(const Frame& frame, const Delivery& delivery, bool* kept) {
  Slot* into = nullptr;
  bool next = false;
  TRY(place(frame.sequence, delivery.bytes, &into, &next));
  into->header = {frame.fingerprint, delivery.bytes};
  if (delivery.announced) {
    into->held = delivery.data;
    into->state = State::kAnnounced;
    *kept = true;
    if (next && post_buffer_ != nullptr && post_bytes_ == delivery.bytes) {
      land(*into, post_buffer_);
    } else {
      link_.core().await_landing(*this);
    }
    return {};
  }
  into->state = State::kReady;
  if (delivery.holdable && delivery.bytes > kCopyBytes) {
    into->held = delivery.data;
    into->data = delivery.payload;
    *kept = true;
    return {};
  }
  std::byte* own = own_memory(*into);
  if (delivery.bytes > 0) std::memcpy(own, delivery.payload, delivery.bytes);
  into->data = own;
  return {};
}

std::byte* RecvChannel::own_memory(Slot& slot) {
  const uint32_t bytes = slot.header.bytes;
  size_t& total = link_.core().memory_bytes;
  return opened() ? slot.memory.ensure_slot(bytes, shape_.slice_bytes, total)
                  : slot.memory.ensure(std::max<uint32_t>(bytes, 64), total);
}

// UCX owns the announcement from here on, whatever comes of it.
void RecvChannel::land(Slot& slot, std::byte* where) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = landed;
  param.user_data = &slot;
  slot.state = State::kArriving;
  slot.data = where;
  ucs_status_ptr_t request = library().ucp_am_recv_data_nbx(
      link_.core().worker(), std::exchange(slot.held, nullptr), where, slot.header.bytes, &param);
  if (request == nullptr) {
    slot.state = State::kReady;
  } else if (UCS_PTR_IS_ERR(request)) {
    link_.core().fail(ucx_error(Code::kRemoteError, UCS_PTR_STATUS(request),
                                fmt::format("ucx: a message of rank {}", link_.peer())));
  } else if (where == post_buffer_) {
    slot.borrows = true;
    link_.borrow(1);
  }
}

void RecvChannel::landed(void* request, ucs_status_t status, size_t bytes, void* user) {
  Slot& slot = *static_cast<Slot*>(user);
  Link& link = slot.channel.link_;
  if (std::exchange(slot.borrows, false)) link.borrow(-1);
  if (status == UCS_OK && bytes == slot.header.bytes) {
    slot.state = State::kReady;
  } else {
    slot.state = State::kEmpty;
    if (!link.broken()) {
      link.core().fail(
          ucx_error(Code::kRemoteError, status,
                    fmt::format("ucx: a message of rank {} did not arrive", link.peer())));
    }
  }
  library().ucp_request_free(request);
}

void RecvChannel::land_announced() {
  for (const auto& slot : slots_) {
    if (slot != nullptr && slot->state == State::kAnnounced) land(*slot, own_memory(*slot));
  }
}

bool RecvChannel::lend(Message* message) {
  Slot* from = slot(released_);
  if (from == nullptr || from->state == State::kEmpty) {
    if (!link_.core().look()) return false;
    from = slot(released_);
    if (from == nullptr || from->state == State::kEmpty) return false;
  }
  if (from->state == State::kAnnounced) land(*from, own_memory(*from));
  if (from->state != State::kReady) return false;
  message->header = from->header;
  message->data = from->data;
  if (!lent_) {
    lent_ = true;
    post_buffer_ = nullptr;  // served by this message, or of no use to it
  }
  return true;
}

void RecvChannel::release() {
  CHECK(lent_);
  lent_ = false;
  Slot& gone = *slot(released_);
  give_back(gone);
  gone.state = State::kEmpty;
  gone.data = nullptr;
  ++released_;
  link_.owe(*this);
}

void RecvChannel::post(void* buffer, uint32_t bytes) {
  if (lent_) return;
  if (post_buffer_ != nullptr) reclaim_post();
  post_buffer_ = static_cast<std::byte*>(buffer);
  post_bytes_ = bytes;
  Slot* next = slot(released_);
  if (next != nullptr && next->state == State::kAnnounced && next->header.bytes == bytes) {
    land(*next, post_buffer_);
  }
}

void RecvChannel::cancel_post() {
  if (post_buffer_ != nullptr) reclaim_post();
}

// The posted buffer goes back to its owner: what has landed there moves to the message's slot.
void RecvChannel::reclaim_post() {
  Slot* next = slot(released_);
  if (next != nullptr && next->data == post_buffer_ && next->state != State::kEmpty) {
    // UCX cannot be told to stop: the peer's bytes are on their way already.
    if (next->state == State::kArriving) {
      link_.core().hurry(link_, [next] { return next->state != State::kArriving; });
    }
    if (next->state == State::kReady) {
      std::byte* own = own_memory(*next);
      std::memcpy(own, post_buffer_, next->header.bytes);
      next->data = own;
    }
  }
  post_buffer_ = nullptr;
}

}  // namespace unisono::ucx
