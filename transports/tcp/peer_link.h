// One socket to one peer and the channels that share it. Driven by the transport's driving thread
// alone; never blocks.
//
// Output: a message goes to the kernel at once if it can, else it waits in one FIFO queue, bounded
// by the channels' credit. Input: small frames are read many at a time into a small buffer, long
// payloads straight to where they belong. Reading never waits for the reader's steps: whoever has
// credit owns a slot here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/net/event_loop.h"
#include "base/net/socket.h"
#include "transports/tcp/channel.h"

namespace unisono::tcp {

// A peer that runs ahead may send on channels that are not open here yet. Beyond this it is not
// running ahead.
inline constexpr uint64_t kMaxUnopenedBytes = 128u << 20;
inline constexpr uint64_t kMaxUnopenedMessages = 4096;
// What cannot be sent at once is copied up to this size, so that the caller has its memory back.
inline constexpr uint32_t kCopyBytes = 4096;
// The most that one system call is offered: sending and receiving take turns.
inline constexpr size_t kPieceBytes = 512u << 10;

enum class Ownership {
  kCaller,
  kSlot
};  // of a message's memory: kSlot stays by itself until it is written

class PeerLink {
 public:
  PeerLink(int32_t peer, LinkState& state);

  int32_t peer() const { return peer_; }
  LinkState& state() { return state_; }
  bool dialled = false;  // the transport's mark: a link was asked for

  // Takes over an authenticated socket. Failures go to state().
  void attach(net::Fd fd);
  bool up() const { return fd_.valid(); }
  bool was_up() const { return was_up_; }
  int fd() const { return fd_.get(); }
  bool peer_left() const { return farewell_received_; }
  bool idle() const { return queue_.empty(); }
  size_t unsent_messages() const;  // queued ones

  Result<SendChannel*> open_send(uint8_t number, const ChannelShape& shape);
  Result<RecvChannel*> open_recv(uint8_t number, const ChannelShape& shape);

  // Reads and writes what can be moved now, a bounded piece each. True if anything moved or failed.
  bool progress();
  // Before sleeping: reports every release and asks to be woken when output can go on.
  void arm();
  // The socket no longer wakes the waiter: after a failure nobody reads it.
  void mute();
  // Queues the farewell behind everything accepted. Nothing is accepted after it.
  void say_farewell();
  // Gives the socket up after the farewell has gone out; invalid if there is none. Whatever is
  // still queued is lost.
  net::Fd detach();
  bool output_failed() const { return output_failed_; }

  // For the channels.
  bool accepts() const { return state_.status.ok() && !farewell_received_ && !farewell_sent_; }
  // Accepts a message. True: the caller's memory is free.
  bool send(SendChannel& channel, const MessageHeader& header, const std::byte* data,
            Ownership ownership);
  void owe(RecvChannel& channel);  // it has one more unreported release
  Status charge_unopened(uint32_t bytes);

 private:
  struct Outgoing {
    std::array<std::byte, kFrameBytes> head;
    const std::byte* data = nullptr;
    uint32_t bytes = 0;
    size_t done = 0;  // of head and payload
    SendChannel* channel = nullptr;
    uint64_t index = 0;
    bool borrowed = false;
    std::unique_ptr<std::byte[]> copy;
  };
  size_t write_now(std::span<const std::byte, kFrameBytes> head, const std::byte* data,
                   uint32_t bytes);
  void take_credit(FrameHeader* frame);
  void report_credits(bool all);
  bool flush();
  bool settle_written(size_t bytes);
  void output_broke(int error_number);
  void drop_queue();

  bool receive();
  void distribute(size_t bytes, size_t direct);
  void parse();
  Status handle(const FrameHeader& frame);
  void input_ended(int error_number);
  void fail(Status failure);
  void close_socket();

  const int32_t peer_;
  LinkState& state_;
  net::Fd fd_;
  bool was_up_ = false;
  bool wants_writable_ = false, muted_ = false;
  bool farewell_received_ = false, farewell_sent_ = false;
  bool output_failed_ = false;
  int output_error_ = 0;

  std::deque<Outgoing> queue_;
  std::vector<RecvChannel*> owing_;  // channels with unreported releases
  bool credit_due_ = false;          // one of them has half of its slots unreported

  Buffer input_;
  size_t input_begin_ = 0, input_end_ = 0;
  RecvChannel* arriving_ = nullptr;  // whose payload the stream is in
  uint64_t unopened_bytes_ = 0, unopened_messages_ = 0;

  std::array<std::unique_ptr<SendChannel>, kMaxChannelNumber + 1> senders_;
  std::array<std::unique_ptr<RecvChannel>, kMaxChannelNumber + 1> receivers_;
};

}  // namespace unisono::tcp
