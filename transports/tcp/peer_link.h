// The sockets to one peer and the channels that share them. Driven by the transport's driving
// thread alone; never blocks.
//
// Usually one socket. With several, long messages go out on whichever has least to do, and find
// their place at the reader by their number; short messages, and all credits, which count upwards,
// keep to the first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/net/socket.h"
#include "transports/tcp/stream.h"

namespace unisono::tcp {

// A peer that runs ahead may send on channels that are not open here yet. Beyond this it is not
// running ahead.
inline constexpr uint64_t kMaxUnopenedBytes = 128u << 20;
inline constexpr uint64_t kMaxUnopenedMessages = 4096;
// Messages of at least this size go out on any socket.
inline constexpr uint32_t kSpreadBytes = 32768;

enum class Ownership {
  kCaller,
  kSlot
};  // of a message's memory: kSlot stays by itself until it is written

class PeerLink {
 public:
  // `sockets`: at most so many, agreed by both ends.
  PeerLink(int32_t peer, int sockets, LinkState& state);

  int32_t peer() const { return peer_; }
  LinkState& state() { return state_; }
  std::span<const std::unique_ptr<Stream>> streams() const { return streams_; }
  bool dialled = false;  // the transport's mark: a link was asked for

  // Takes over an authenticated socket; failures go to state(). False: there is one too many.
  bool attach(net::Fd fd);
  bool up() const;
  bool was_up() const { return streams_.front()->was_up(); }
  // It has said farewell on all sockets that it used.
  bool peer_left() const;
  bool idle() const;
  size_t unsent_messages() const;  // queued ones

  Result<SendChannel*> open_send(uint8_t number, const ChannelShape& shape);
  Result<RecvChannel*> open_recv(uint8_t number, const ChannelShape& shape);

  // Reads and writes what can be moved now, a bounded piece a socket. True if anything moved or
  // failed.
  bool progress();
  // Before sleeping: reports every release and asks to be woken when output can go on.
  void arm();
  // The sockets no longer wake the waiter: after a failure nobody reads them.
  void mute();
  // Reads no memory of callers from here on (Stream::give_up_borrowed).
  void give_up_borrowed();
  // Queues the farewell behind everything accepted. Nothing is accepted after it.
  void say_farewell();

  // For the channels.
  bool accepts() const;
  // Accepts a message. True: the caller's memory is free.
  bool send(SendChannel& channel, const MessageHeader& header, const std::byte* data,
            Ownership ownership);
  void owe(RecvChannel& channel);  // it has one more unreported release
  Status charge_unopened(uint32_t bytes);

  // For the streams.
  Status handle(const FrameHeader& frame, Arriving* message);
  void fail(Status failure);

 private:
  Stream& first() { return *streams_.front(); }
  Stream& stream_for(uint32_t bytes);
  void take_credit(FrameHeader* frame);
  void report_credits(bool all);

  const int32_t peer_;
  LinkState& state_;
  std::vector<std::unique_ptr<Stream>> streams_;
  size_t turn_ = 0;
  bool farewell_said_ = false;
  int farewells_due_ = 0;  // by the peer's word; 0: it has not begun to leave

  std::vector<RecvChannel*> owing_;  // channels with unreported releases
  bool credit_due_ = false;          // one of them has half of its slots unreported

  uint64_t unopened_bytes_ = 0, unopened_messages_ = 0;

  std::array<std::unique_ptr<SendChannel>, kMaxChannelNumber + 1> senders_;
  std::array<std::unique_ptr<RecvChannel>, kMaxChannelNumber + 1> receivers_;
};

}  // namespace unisono::tcp
