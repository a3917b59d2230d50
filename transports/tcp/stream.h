// One socket of a link: its output queue, and its input as far as frames. Driven by the transport's
// driving thread alone; never blocks.
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
#include <span>

#include "base/net/socket.h"
#include "transports/tcp/channel.h"

namespace unisono::tcp {

class PeerLink;

// What cannot be sent at once is copied up to this size, so that the caller has its memory back.
inline constexpr uint32_t kCopyBytes = 4096;
// The most that one system call is offered: sending and receiving take turns.
inline constexpr size_t kPieceBytes = 512u << 10;

// The message whose payload a stream is in.
struct Arriving {
  RecvChannel* channel = nullptr;
  uint64_t index = 0;
  explicit operator bool() const { return channel != nullptr; }
  uint32_t missing() const { return channel->missing(index); }
  std::byte* landing() const { return channel->landing(index); }
  void finish() const { channel->finish(index); }
};

class Stream {
 public:
  struct Outgoing {
    std::array<std::byte, kFrameBytes> head;
    const std::byte* data = nullptr;
    uint32_t bytes = 0;
    bool callers = false;            // the memory is the caller's, who may want it back at once
    SendChannel* channel = nullptr;  // null: no message of a channel
    uint64_t index = 0;
    size_t done = 0;  // of head and payload
    bool borrowed = false;
    std::unique_ptr<std::byte[]> copy;

    size_t unsent() const { return kFrameBytes + bytes - done; }
    void keep();  // copies what is short, borrows what is not
  };

  explicit Stream(PeerLink& link);

  // Takes over an authenticated socket.
  Status attach(net::Fd fd);
  bool up() const { return fd_.valid(); }
  bool was_up() const { return was_up_; }
  int fd() const { return fd_.get(); }
  bool idle() const { return queue_.empty(); }
  uint64_t queued_bytes() const { return queued_bytes_; }
  size_t unsent_messages() const;  // queued ones
  bool farewell_received() const { return farewell_received_; }
  bool farewell_sent() const { return farewell_sent_; }
  bool output_failed() const { return output_failed_; }

  // Reads and writes what can be moved now, a bounded piece each. True if anything moved or failed.
  bool progress();
  bool flush();
  // Before sleeping: asks to be woken when output can go on.
  void arm();
  // What the kernel takes at once, of head and payload; 0 where something waits already.
  size_t write(std::span<const std::byte, kFrameBytes> head, const std::byte* data, uint32_t bytes);
  // The rest waits here. It is not the caller's any more unless borrowed (SendChannel::borrow).
  void enqueue(Outgoing out);
  // Reads no memory of callers from here on: if a message still lies there, output ends with it,
  // and the peer will see no farewell. True if so.
  bool give_up_borrowed();
  // Behind everything accepted. Nothing is accepted after it.
  void say_farewell(Outgoing out);
  // The socket no longer wakes the waiter: after a failure nobody reads it.
  void mute();
  // Gives the socket up after the farewell has gone out; invalid if there is none. Whatever is
  // still queued is lost.
  net::Fd detach();
  void close_socket();

 private:
  size_t write_now(std::span<const std::byte, kFrameBytes> head, const std::byte* data,
                   uint32_t bytes);
  bool settle_written(size_t bytes);
  void output_broke(int error_number);
  void drop_queue();

  bool receive();
  void distribute(size_t bytes, size_t direct);
  void parse();
  Status handle(const FrameHeader& frame, Arriving* message);
  void input_ended(int error_number);

  PeerLink& link_;
  net::Fd fd_;
  bool was_up_ = false;
  bool wants_writable_ = false, muted_ = false;
  bool farewell_received_ = false, farewell_sent_ = false;
  bool output_failed_ = false;
  int output_error_ = 0;

  std::deque<Outgoing> queue_;
  uint64_t queued_bytes_ = 0;

  SlotMemory input_;
  size_t input_begin_ = 0, input_end_ = 0;
  Arriving arriving_;
};

}  // namespace unisono::tcp
