// The whole contract of a transport: how bytes move along channels. Everything here is
// non-blocking.
//
// A transport object serves one communicator's rank. One thread at a time drives it (the
// communicator sees to that), except where a function says "any thread". Failures are sticky:
// status() names the peer, operations then do nothing. Every accepted message is delivered exactly
// once, in order per channel, and needs no help of the reader's step: it owns one of the channel's
// slots at each reader (PLAN_MACHINE rule 3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"

namespace unisono {

class World;

namespace net {
class Endpoint;
}

inline constexpr int32_t kEveryone =
    -1;  // ChannelKey::reader: all ranks of the transport but the writer
inline constexpr uint32_t kMaxChannelNumber = 255;
inline constexpr uint32_t kMaxSliceBytes = 4u << 20;

struct ChannelKey {
  uint32_t number = 0;  // 0..kMaxChannelNumber
  int32_t writer = 0;
  int32_t reader = 0;  // a rank, or kEveryone
  bool operator==(const ChannelKey&) const = default;
  auto operator<=>(const ChannelKey&) const = default;
};

// Agreed by all ranks before a channel is first used (the planner's business), the same at both
// ends.
struct ChannelShape {
  uint32_t slice_bytes = 256u << 10;  // longest message
  uint32_t slots = 4;                 // messages in flight before credit runs out; at least 2
};

struct MessageHeader {
  uint64_t fingerprint = 0;  // of the operation; opaque here, compared by comm
  uint32_t bytes = 0;        // of the payload, at most slice_bytes
};

enum class SendOutcome {
  kDone,    // accepted; the memory may be overwritten
  kPosted,  // accepted; the memory must stay as it is until completed() reaches accepted()'s
            // present value
  kAgain,   // no credit, nothing happened
};

class SendEnd {
 public:
  virtual ~SendEnd() = default;
  virtual SendOutcome send(const MessageHeader& header, const void* data) = 0;
  // The next outgoing slot, at least slice_bytes long and 64-byte aligned, or nullptr without
  // credit. Idempotent until commit.
  virtual std::byte* reserve() = 0;
  virtual void commit(const MessageHeader& header) = 0;  // sends the reserved slot
  // Before the reserved slot is filled with `bytes`: whether that is best done with non-temporal
  // stores (fenced before commit). A matter of speed alone; need not be asked.
  virtual bool streams([[maybe_unused]] uint32_t bytes) { return false; }
  // By reference (rule 5): `data` lies in registered memory; readers see it in place. Complete when
  // all have released it.
  virtual SendOutcome send_reference(const MessageHeader& header, const void* data,
                                     uint64_t registration) = 0;
  // A hint after send: the answer to it will be followed by another message of that length.
  // Default: ignored.
  virtual void prepare_next([[maybe_unused]] uint32_t bytes) {}
  virtual uint64_t accepted() const = 0;  // messages accepted so far
  virtual uint64_t completed()
      const = 0;  // of those, how many no longer need the caller's memory; may poll, never blocks
};

struct Message {
  MessageHeader header;
  const std::byte* data = nullptr;  // valid until release()
};

class RecvEnd {
 public:
  virtual ~RecvEnd() = default;
  // The next message, in the transport's or the writer's memory. False: none yet. Idempotent until
  // release. `header.bytes` may be anything up to slice_bytes: a peer's bytes are input.
  virtual bool lend(Message* message) = 0;
  virtual void release() = 0;  // of the lent message
  // A hint before lend, ignored while a message is lent: the next message, if of exactly `bytes`,
  // may be landed straight in `buffer`; lend then returns data == buffer. It must stay until that
  // message is lent or cancel_post() is called. Default: ignored.
  virtual void post([[maybe_unused]] void* buffer, [[maybe_unused]] uint32_t bytes) {}
  virtual void cancel_post() {}
};

struct TransportCaps {
  const char* name = "";
  bool multicast = false;        // channels with several readers
  bool by_reference = false;     // send_reference works for memory of uniMemAlloc
  bool prefers_reserve = false;  // writing the slot in place is cheaper than send() (shared memory)
  bool same_memory = false;      // lend is a load away: ideal for direct algorithms
  bool cheap_poll = false;  // looking asks no kernel, and lend() looks itself; known after ready()
  uint32_t slice_bytes = 256u << 10;  // what it likes best
  uint32_t slots = 4;
  double latency_us = 1;  // a priori, for the planner
  double gigabytes_per_s = 10;
};

// What a transport is given. Everything outlives the transport.
struct TransportContext {
  Env* env = nullptr;
  Waiter* waiter = nullptr;           // of the driving thread; shm rings it, tcp adds its sockets
  net::Endpoint* endpoint = nullptr;  // authenticated links to peers; null in sim and for one rank
  int32_t rank = 0, ranks = 1;
  std::string options;           // text after "name:" in the transports list ("sim:seed=7")
  std::shared_ptr<World> world;  // of the registry entry's make_world (sim), else null
};

// Memory of uniMemAlloc, or any other (fd == -1), as registered on one communicator.
struct Region {
  void* address = nullptr;
  size_t bytes = 0;
  int fd = -1;             // memfd behind it, or -1
  uint64_t fd_offset = 0;  // of `address` in it
};

class Transport {
 public:
  virtual ~Transport() = default;  // after close()
  virtual const TransportCaps& caps() const = 0;
  // What peers need to know, at most 4096 bytes, opaque to others; sent to all ranks at rendezvous.
  virtual std::string address() const = 0;
  // All ranks' addresses, indexed by rank (empty: that rank lacks this transport). Peers' bytes:
  // validated here. Does not wait. Links are made when a channel is first opened, or before. Called
  // once.
  virtual Status connect(std::span<const std::string> addresses) = 0;
  // Whether channels to this peer are possible, as far as is known without waiting: known after
  // ready(). Self is false.
  virtual bool reaches(int32_t peer) const = 0;
  // False while links that decide reaches() are still being made (same-machine proof of shm).
  // Progress makes it true.
  virtual bool ready() const = 0;

  // The ends of a channel; owned by the transport, alive until close. Idempotent for one key; a
  // changed shape is an error.
  virtual Result<SendEnd*> open_send(const ChannelKey& key, const ChannelShape& shape) = 0;
  virtual Result<RecvEnd*> open_recv(const ChannelKey& key, const ChannelShape& shape) = 0;

  virtual Result<uint64_t> register_memory(
      const Region& region) = 0;  // 0 is never a valid registration
  virtual void deregister_memory(uint64_t registration) = 0;

  // Moves what can be moved now. True if anything did.
  virtual bool progress() = 0;
  // True when nothing accepted still needs this thread to reach the peers (copies waiting for a
  // socket, say). An operation is over only then: afterwards nobody may drive the transport for a
  // long time.
  virtual bool flushed() const { return true; }
  // Before sleeping in Env::wait: from here on whatever would make progress notifies the waiter.
  // True: something has happened meanwhile, do not sleep. disarm() after waking.
  virtual bool arm() = 0;
  virtual void disarm() = 0;
  // Ok, or the first failure. A peer that left in order (closed after its last message) is a
  // failure only for who waits for it: peer_left.
  virtual Status status() const = 0;
  virtual bool peer_left(int32_t peer) const = 0;
  // Whether there is, or was, a link to the peer. False: nothing of its is on its way, unless it is
  // sending just now.
  virtual bool linked([[maybe_unused]] int32_t peer) const { return true; }
  virtual size_t memory_bytes() const = 0;  // mapped or allocated
  // Flushes accepted messages (without blocking the caller for longer than the hand-over takes) and
  // ends all links in order. Reads no memory of callers: an operation is over only when its sends
  // are, so what is still posted belongs to one that failed; its peer may then see a link that
  // broke.
  virtual void close() = 0;
};

}  // namespace unisono
