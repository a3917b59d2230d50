// The two ends of a shared-memory channel. The hot path is a few loads and stores: no lock,
// allocation or division.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "base/ticks.h"
#include "transports/shm/layout.h"
#include "transports/shm/peer.h"
#include "transports/shm/segment.h"
#include "transports/shm/store_chooser.h"
#include "transports/transport.h"

namespace unisono::shm {

// A plain load that is done once: the compiler may not read the (peer's) memory again after the
// check.
template <class T>
inline T read_once(const T& field) {
  T value = field;
  asm volatile("" : "+r"(value));
  return value;
}

// Between publishing and looking whether the other side sleeps. Without membarrier the sender pays
// for the order itself.
inline void publish_barrier(bool fence, [[maybe_unused]] std::atomic<uint64_t>& word) {
  if (__builtin_expect(!fence, 1)) {
    asm volatile("" ::: "memory");
    return;
  }
#ifdef UNISONO_TSAN
  word.fetch_add(0, std::memory_order_seq_cst);  // the sanitizer does not know fences
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Wakes a sleeping peer, once however many messages follow.
void ring(std::atomic<uint32_t>& sleeping, int bell);

struct Registered {
  const std::byte* address = nullptr;
  size_t bytes = 0;
  bool shared = false;  // the peers can see it
};

// Everything is the driving thread's.
class ShmSendEnd final : public SendEnd {
 public:
  // `readers` and `own` outlive the end; `offset` is the channel's block in `own`.
  ShmSendEnd(const ChannelKey& key, const ChannelShape& shape, Segment& own, uint64_t offset,
             std::vector<Peer*> readers, const std::map<uint64_t, Registered>& registered,
             StickyStatus& status);

  SendOutcome send(const MessageHeader& header, const void* data) override;
  std::byte* reserve() override;
  void commit(const MessageHeader& header) override;
  bool streams(uint32_t bytes) override;
  SendOutcome send_reference(const MessageHeader& header, const void* data,
                             uint64_t registration) override;
  void prepare_next(uint32_t bytes) override;
  uint64_t accepted() const override { return sent_; }
  uint64_t completed() const override;

  const ChannelShape& shape() const { return shape_; }
  // For arm(): whether a release would let this end's user go on; and whether one has come since he
  // last looked.
  bool wants_credit() const { return starved_ || last_reference_ > released_; }
  bool take_news();

 private:
  struct Reader {
    std::atomic<uint64_t>* released = nullptr;
    uint32_t counter = 0;  // the number of that line
    std::atomic<uint32_t>* sleeping =
        nullptr;  // of its segment; a word that is always 0 if it is gone
    int bell = -1;
    Peer* peer = nullptr;
  };
  Descriptor& descriptor() { return ring_[descriptor_index(sent_)]; }
  // The message after the next has its descriptor free: its reader is past the one before it there.
  bool is_free_ahead() const { return sent_ + 1 - released_ < kDescriptors; }
  bool has_descriptor() { return sent_ - released_ < most_in_flight_ || refill(); }
  bool refill();
  bool place(uint32_t bytes, uint64_t* offset);
  bool refresh() const;
  void publish(const MessageHeader& header, uint32_t where);
  void publish_timed(const MessageHeader& header, uint32_t where);
  void store(std::byte* slot, const void* data, uint32_t bytes);
  void look_for_sample();
  void take_ahead(uint32_t bytes);
  void wake_readers();
  void resolve_readers();
  void cancel_reservation();
  SendOutcome refuse();

  const ChannelKey key_;
  const ChannelShape shape_;
  const BlockLayout layout_;
  Descriptor* ring_;
  std::byte* eager_;
  std::byte* arena_;
  std::vector<Reader> readers_;
  size_t unresolved_;  // readers whose link is not up yet
  bool fence_ = false;
  bool starved_ = false;
  bool reserved_ = false;
  bool eager_mapped_ = false;
  uint64_t reserved_offset_ = 0;
  struct {
    uint64_t offset = 0, taken = 0;
  } reserved_from_;  // the arena's state before the reservation
  uint64_t sent_ = 0;
  uint64_t most_in_flight_ = kDescriptors;  // less while a ring that was full empties
  // Arena: where the next piece begins, and how many bytes were ever taken (with those skipped at
  // the ring's end).
  uint64_t next_offset_ = 0;
  uint64_t taken_ = 0;
  mutable uint64_t freed_ = 0;
  mutable uint64_t released_ = 0;  // by the slowest reader, as last read
  uint64_t last_reference_ = 0;    // messages up to and including the last one by reference
  mutable uint64_t completed_ = 0;
  mutable uint64_t reported_ = 0;  // what the user was last told of completed_
  StoreChooser stores_;
  // The message that is timed: being written, then with its reader.
  struct {
    enum { kNone, kWriting, kReading } state = kNone;
    bool streaming = false;
    uint32_t bytes = 0;
    uint64_t message = 0;
    uint64_t ticks = 0;  // when it began; then what writing took
  } timed_;
  uint32_t timer_ = 0;  // which reader times next
  const std::map<uint64_t, Registered>& registered_;
  StickyStatus& status_;
  uint64_t taken_after_[kDescriptors] = {};  // taken_ after each message in flight
};

// What the receive ends of one transport share to time reading: it begins with the last message
// lent before the release, because a reader of several waits for the others with the first in hand.
struct ReadClock {
  uint32_t running = 0;  // lent messages that are timed
  uint64_t since = 0;    // ticks

  void lent() {
    if (__builtin_expect(running != 0, 0)) since = ticks();
  }
};

class ShmRecvEnd final : public RecvEnd {
 public:
  ShmRecvEnd(const ChannelKey& key, const ChannelShape& shape, int32_t rank, int32_t ranks,
             Peer& writer, ReadClock& clock, StickyStatus& status);
  bool lend(Message* message) override;
  void release() override;

  const ChannelShape& shape() const { return shape_; }
  // For arm(): whether a message has come that neither lend() nor this has reported.
  bool take_news();

 private:
  bool resolve();
  bool lend_far(Descriptor& descriptor, uint32_t where, Message* message);
  void begin_timing(Descriptor& descriptor);
  bool fail(const char* what);

  const ChannelKey key_;
  const ChannelShape shape_;
  const BlockLayout layout_;
  const uint32_t counter_;  // which released line is ours
  Descriptor* ring_ = nullptr;
  const std::byte* eager_ = nullptr;
  bool eager_mapped_ = false;
  const std::byte* arena_ = nullptr;
  std::atomic<uint64_t>* released_ = nullptr;
  std::atomic<uint32_t>* writer_sleeping_ = nullptr;
  bool fence_ = true;
  bool broken_ = false;
  uint64_t next_ = 0;
  uint64_t reported_ = 0;  // 1 + the message that was last reported as news
  uint32_t directory_scanned_ = 0;
  std::byte* timing_ = nullptr;  // where the lent message's reading time is to be written
  std::shared_ptr<void> hold_;   // mapping of the lent reference
  Peer& writer_;
  ReadClock& clock_;
  StickyStatus& status_;
};

}  // namespace unisono::shm
