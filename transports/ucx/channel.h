// The two ends of a ucx channel: slots, credit, posted buffers. UCX moves the bytes; what it says
// comes through the Link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/slot_memory.h"
#include "transports/transport.h"
#include "transports/ucx/frame.h"
#include "transports/ucx/library.h"

namespace unisono::ucx {

class Link;

// Up to this size a message is copied behind its frame and goes as one piece; longer ones are read
// by UCX where they lie.
inline constexpr uint32_t kInlineBytes = 1024;
// Up to this size an arrived message is copied, which gives UCX its buffer back.
inline constexpr uint32_t kCopyBytes = 512;
class SendChannel final : public SendEnd {
 public:
  SendChannel(Link& link, uint8_t number, const ChannelShape& shape);

  SendOutcome send(const MessageHeader& header, const void* data) override;
  std::byte* reserve() override;
  void commit(const MessageHeader& header) override;
  // caps().by_reference is false: an ordinary send, which UCX reads in place if it is long.
  SendOutcome send_reference(const MessageHeader& header, const void* data, uint64_t) override {
    return send(header, data);
  }
  uint64_t accepted() const override { return accepted_; }
  uint64_t completed() const override { return completed_; }

  const ChannelShape& shape() const { return shape_; }
  // The peer released that many (mod 2^32). An error if it cannot have.
  Status credit(uint32_t released);

 private:
  // One a slot: UCX may read frame and inline bytes until it says that it is done.
  struct Entry {
    alignas(64) std::byte bytes[kFrameBytes + kInlineBytes];
    SendChannel* channel = nullptr;
    bool busy = false;      // UCX is not done with it
    bool borrowed = false;  // nor with the caller's memory
  };
  bool can_send() const;
  Entry& entry(uint64_t index) const { return entries_[index % shape_.slots]; }
  // Accepts a message. True: `data` is free.
  bool transmit(const MessageHeader& header, const void* data, bool callers);
  static void done(void* request, ucs_status_t status, void* entry);

  Link& link_;
  const uint8_t number_;
  const ChannelShape shape_;
  uint64_t accepted_ = 0, completed_ = 0;
  uint64_t released_ = 0;  // by the reader, as far as told
  uint64_t borrowed_ = 0;  // accepted ones that still need the caller's memory
  std::unique_ptr<Entry[]> entries_;
  std::unique_ptr<SlotMemory[]> slots_;  // for reserve(); made at its first call
};

// How UCX handed a message over.
struct Delivery {
  const std::byte* payload = nullptr;  // null for one that is only announced
  uint32_t bytes = 0;
  void* data = nullptr;    // UCX's name of it: what is released, or landed
  bool holdable = false;   // payload may be kept until ucp_am_data_release(data)
  bool announced = false;  // rendezvous: the bytes come when they are asked for
};

class RecvChannel final : public RecvEnd {
 public:
  RecvChannel(Link& link, uint8_t number);

  bool lend(Message* message) override;
  void release() override;
  void post(void* buffer, uint32_t bytes) override;
  void cancel_post() override;

  bool opened() const { return shape_.slots != 0; }
  const ChannelShape& shape() const { return shape_; }
  uint8_t number() const { return number_; }
  // Gives the shape to a channel that may hold messages already; an error if they do not fit it.
  Status open(const ChannelShape& shape);

  // A message came. Its place is that of its sequence number: long ones may be overtaken. *kept:
  // delivery.data is the channel's from now on.
  Status take(const Frame& frame, const Delivery& delivery, bool* kept);
  // Gives UCX its buffers back: nothing is lent any more.
  void drop_messages();
  // Fetches what was announced into its slots; nobody has posted a buffer for it.
  void land_announced();

  uint64_t released() const { return released_; }
  uint64_t unreported() const { return released_ - reported_; }
  void reported() { reported_ = released_; }
  // Of the time before open().
  uint64_t held_messages() const { return held_messages_; }
  uint64_t held_bytes() const { return held_bytes_; }

  bool owing = false;    // the link's mark: waits in its list of channels with unreported releases
  bool waiting = false;  // the core's mark: has announced messages

 private:
  enum class State : uint8_t { kEmpty, kAnnounced, kArriving, kReady };
  struct Slot {
    explicit Slot(RecvChannel& owner) : channel(owner) {}
    RecvChannel& channel;
    State state = State::kEmpty;
    bool borrows = false;  // it is arriving in the posted buffer
    MessageHeader header;
    const std::byte* data = nullptr;  // memory, the posted buffer, or UCX's
    void* held = nullptr;             // UCX's, to be released or landed
    SlotMemory memory;
  };
  // Null: nothing was ever there (only before open()).
  Slot* slot(uint64_t index) {
    const uint64_t at = opened() ? index % shape_.slots : index;
    return at < slots_.size() ? slots_[at].get() : nullptr;
  }
  Status place(uint32_t sequence, uint32_t bytes, Slot** found, bool* next);
  std::byte* own_memory(Slot& slot);
  void land(Slot& slot, std::byte* where);
  void give_back(Slot& slot);
  void reclaim_post();
  static void landed(void* request, ucs_status_t status, size_t bytes, void* slot);

  Link& link_;
  const uint8_t number_;
  ChannelShape shape_{0, 0};
  std::vector<std::unique_ptr<Slot>> slots_;  // before open(): by sequence number
  uint64_t released_ = 0, reported_ = 0;
  uint64_t held_messages_ = 0, held_bytes_ = 0;
  bool lent_ = false;
  std::byte* post_buffer_ = nullptr;  // of the next message; null while one is lent
  uint32_t post_bytes_ = 0;
};

}  // namespace unisono::ucx
