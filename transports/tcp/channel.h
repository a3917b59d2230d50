// The two ends of a tcp channel. They know slots and credit, not sockets: bytes are moved by their
// PeerLink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/slot_memory.h"
#include "transports/tcp/frame.h"
#include "transports/transport.h"

namespace unisono::tcp {

class PeerLink;

// What all links of one transport share. Driving thread only.
struct LinkState {
  int32_t rank = 0;
  Waiter* waiter = nullptr;
  Status status;            // the first failure
  size_t memory_bytes = 0;  // slots and buffers

  void fail(Status failure) {
    if (status.ok()) status = std::move(failure);
  }
};

class SendChannel final : public SendEnd {
 public:
  SendChannel(PeerLink& link, uint8_t number, const ChannelShape& shape);

  SendOutcome send(const MessageHeader& header, const void* data) override;
  std::byte* reserve() override;
  void commit(const MessageHeader& header) override;
  // caps().by_reference is false: an ordinary send.
  SendOutcome send_reference(const MessageHeader& header, const void* data, uint64_t) override {
    return send(header, data);
  }
  uint64_t accepted() const override { return accepted_; }
  uint64_t completed() const override { return completed_; }

  const ChannelShape& shape() const { return shape_; }
  uint8_t number() const { return number_; }
  // The peer released that many (mod 2^32). An error if it cannot have.
  Status credit(uint32_t released);

  // The link's side of a send. The message is on its way: its index is the result.
  uint64_t accept() { return accepted_++; }
  // The caller's memory is needed until wrote(index, borrowed = true).
  void borrow() { ++borrowed_; }
  void settle() {
    if (borrowed_ == 0) completed_ = accepted_;
  }
  // The kernel has all of message `index` (or never needs it, where the peer has left). On several
  // sockets later messages may be written before earlier ones.
  void wrote(uint64_t index, bool borrowed);

 private:
  bool has_credit() const { return accepted_ - released_ < shape_.slots; }

  PeerLink& link_;
  const uint8_t number_;
  const ChannelShape shape_;
  uint64_t accepted_ = 0, completed_ = 0;
  uint64_t written_ = 0;     // messages that the kernel has whole, without a gap
  std::vector<bool> early_;  // written beyond the gap, by index mod slots; made when needed
  size_t early_count_ = 0;
  uint64_t released_ = 0;          // by the reader, as far as told
  uint64_t borrowed_ = 0;          // accepted ones that still need the caller's memory
  std::vector<SlotMemory> slots_;  // for reserve(); made at its first call
};

class RecvChannel final : public RecvEnd {
 public:
  RecvChannel(PeerLink& link, uint8_t number);

  bool lend(Message* message) override;
  void release() override;
  void post(void* buffer, uint32_t bytes) override;
  void cancel_post() override;

  bool opened() const { return shape_.slots != 0; }
  const ChannelShape& shape() const { return shape_; }
  uint8_t number() const { return number_; }
  // Gives the shape to a channel that may hold messages already; an error if they do not fit it.
  Status open(const ChannelShape& shape);

  // The socket's side: a message begins (the header was parsed), its bytes arrive at landing(),
  // until missing() is 0. With `in_order` it must be the next one: a single socket keeps order.
  Status begin(const FrameHeader& header, bool in_order, uint64_t* index);
  std::byte* landing(uint64_t index);
  uint32_t missing(uint64_t index) { return slot(index).header.bytes - slot(index).arrived; }
  void arrived(uint64_t index, uint32_t bytes) { slot(index).arrived += bytes; }
  void finish(uint64_t index);

  uint64_t released() const { return released_; }
  uint64_t unreported() const { return released_ - reported_; }
  void reported() { reported_ = released_; }
  // Received, whole or in part, and not released.
  uint64_t held_messages() const;
  uint64_t held_bytes() const;

  bool owing = false;  // the link's mark: waits in its list of channels with unreported releases

 private:
  struct Slot {
    SlotMemory memory;
    MessageHeader header;
    const std::byte* data = nullptr;  // memory, or the posted buffer; null: the slot is empty
    uint32_t arrived = 0;             // of header.bytes
    bool whole = false;
  };
  Slot& slot(uint64_t index) { return slots_[index % slots_.size()]; }
  Status find_slot(const FrameHeader& header, bool in_order, uint64_t* index);
  void reclaim_post();

  PeerLink& link_;
  const uint8_t number_;
  ChannelShape shape_{0, 0};
  std::vector<Slot> slots_;  // before open(): one a message
  uint64_t received_ = 0;    // whole messages, without a gap
  uint64_t released_ = 0, reported_ = 0;
  bool lent_ = false;
  std::byte* post_buffer_ = nullptr;  // of the next message; null while one is lent
  uint32_t post_bytes_ = 0;
};

}  // namespace unisono::tcp
