// A channel in memory: K slots that writer and readers share, and who has got and released how many
// messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <tuple>
#include <vector>

#include "transports/transport.h"

namespace unisono {

struct SimCore;
class SimPort;

// (writer's port, number, reader's rank or kEveryone).
using SimChannelKey = std::tuple<uint64_t, uint32_t, int32_t>;

// Guarded by the scheduler's mutex, but for the slots' bytes: these belong to the writer until the
// message is sent, then to the readers until the last release has come back.
struct SimChannel {
  struct Reader {
    int32_t rank = 0;  // in the communicator
    uint64_t port = 0;
    uint64_t arrived = 0;   // messages that are here
    uint64_t released = 0;  // of those, by the reader
    uint64_t credited = 0;  // of those, as far as the writer knows
    int64_t last_arrival_ns = 0, last_credit_ns = 0;
  };
  struct Slot {
    struct Free {
      void operator()(std::byte* bytes) const { ::operator delete[](bytes, std::align_val_t(64)); }
    };
    std::unique_ptr<std::byte[], Free> bytes;  // made when first used
    MessageHeader header;
    const std::byte* data = nullptr;
  };

  ChannelShape shape;
  int32_t writer_rank = 0;  // in the communicator
  uint64_t writer_port = 0;
  uint64_t sent = 0;
  std::vector<Reader> readers;
  std::vector<Slot> slots;
  std::deque<uint64_t>
      posted;  // messages that lie in the caller's memory, not known to be released
  // The writer closed: from this message on, which lies in memory of a caller, none will come.
  uint64_t given_up_at = UINT64_MAX;

  uint64_t credited() const;
  bool has_credit() const { return sent - credited() < shape.slots; }
  Slot& slot(uint64_t message) { return slots[message % shape.slots]; }
  std::byte* slot_bytes(uint64_t message);
  size_t memory_bytes() const;
};

class SimSendEnd final : public SendEnd {
 public:
  SimSendEnd(SimCore& core, SimPort& port, std::shared_ptr<SimChannel> channel);
  SendOutcome send(const MessageHeader& header, const void* data) override;
  std::byte* reserve() override;
  void commit(const MessageHeader& header) override;
  // The caller has checked the registration.
  SendOutcome send_reference(const MessageHeader& header, const void* data,
                             uint64_t registration) override;
  uint64_t accepted() const override;
  uint64_t completed() const override;
  SimChannel& channel() { return *channel_; }
  // At the end, with the scheduler's lock held: no reader is lent memory of callers from here on.
  void give_up_posted();

 private:
  SendOutcome post(const MessageHeader& header, const void* data);
  void dispatch(const MessageHeader& header, const std::byte* data);

  SimCore& core_;
  SimPort& port_;
  const std::shared_ptr<SimChannel> channel_;
};

class SimRecvEnd final : public RecvEnd {
 public:
  SimRecvEnd(SimCore& core, SimPort& port, std::shared_ptr<SimChannel> channel, size_t reader);
  bool lend(Message* message) override;
  void release() override;
  SimChannel& channel() { return *channel_; }

 private:
  SimCore& core_;
  SimPort& port_;
  const std::shared_ptr<SimChannel> channel_;
  const size_t reader_;
};

}  // namespace unisono
