// One UCX endpoint to one peer and the channels that share it. Driven by the worker's thread alone;
// never blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transports/ucx/channel.h"

namespace unisono::ucx {

class Core;

// The one active message of the transport.
inline constexpr unsigned kMessageId = 1;

// A peer that runs ahead may send on channels that are not open here yet. Beyond this it is not
// running ahead.
inline constexpr uint64_t kMaxUnopenedBytes = 128u << 20;
inline constexpr uint64_t kMaxUnopenedMessages = 4096;

class Link {
 public:
  Link(Core& core, int32_t peer) : core_(core), peer_(peer) {}

  Core& core() { return core_; }
  int32_t peer() const { return peer_; }

  // Makes the endpoint. An error says that UCX has no way to the peer; it does not fail the
  // transport.
  Status open();
  bool has_endpoint() const { return endpoint_ != nullptr; }
  bool broken() const { return broken_; }
  bool over_sockets() const { return over_sockets_; }
  // The peer has sent something.
  bool heard() const { return heard_; }
  // The peer will say farewell when it leaves, or its endpoint will fail.
  bool expects_farewell() const {
    return endpoint_ != nullptr && !broken_ && !farewell_received_ && (heard_ || used_);
  }
  bool peer_left() const { return farewell_received_; }

  Result<SendChannel*> open_send(uint8_t number, const ChannelShape& shape);
  Result<RecvChannel*> open_recv(uint8_t number, const ChannelShape& shape);

  // A frame of the peer. *kept: as RecvChannel::take.
  Status receive(const Frame& frame, const Delivery& delivery, bool* kept);
  // Reports the releases that the peer may be waiting for; `all`: every one, before sleeping.
  void report_credits(bool all);
  bool credit_due() const { return credit_due_; }
  // True when UCX needs no more progress of ours for what was sent, as far as can be known without
  // the peer's help. May send a word to find out.
  bool settled();
  void say_farewell();
  // Sends that read memory of callers are under way.
  bool borrows() const { return borrowed_ > 0; }
  // Gives UCX its buffers back; the channels hold nothing any more.
  void drop_messages();
  // Forces the endpoint shut: what it was doing ends in an error. The result is a request, or null.
  void* shut();

  // For the channels.
  enum class Sent { kDone, kPending, kFailed };
  bool accepts() const;
  // Fills in writer, token and a credit that is owed.
  void complete_frame(Frame* frame);
  // `done` runs later if the result is kPending.
  Sent send(const std::byte* head, size_t head_bytes, const void* data, size_t bytes,
            ucp_send_nbx_callback_t done, void* argument);
  void send_is_over(void* request, ucs_status_t status);
  void borrow(int count) { borrowed_ += count; }  // callers' memories that UCX reads
  void owe(RecvChannel& channel);                 // it has one more unreported release
  Status charge_unopened(uint32_t bytes);

 private:
  struct Word {  // a frame without a message, while UCX reads it
    std::array<std::byte, kFrameBytes> bytes;
    Link* link = nullptr;
  };
  Sent say(FrameKind kind);
  static void said(void* request, ucs_status_t status, void* word);
  static void failed(void* link, ucp_ep_h endpoint, ucs_status_t status);

  Core& core_;
  const int32_t peer_;
  ucp_ep_h endpoint_ = nullptr;
  bool broken_ = false;  // UCX gave it up, or we did
  bool heard_ = false;
  bool used_ = false;  // we have sent something
  bool farewell_received_ = false, farewell_sent_ = false;
  bool over_sockets_ = false;                 // UCX sends by sockets
  bool dirty_ = false;                        // sent since settled() was last true
  int borrowed_ = 0;                          // memories of callers that UCX reads
  uint32_t pending_ = 0;                      // sends that UCX is not done with
  std::vector<std::unique_ptr<Word>> words_;  // free ones
  std::vector<RecvChannel*> owing_;           // channels with unreported releases
  bool credit_due_ = false;                   // one of them has half of its slots unreported
  uint64_t unopened_bytes_ = 0, unopened_messages_ = 0;
  std::array<std::unique_ptr<SendChannel>, kMaxChannelNumber + 1> senders_;
  std::array<std::unique_ptr<RecvChannel>, kMaxChannelNumber + 1> receivers_;
};

}  // namespace unisono::ucx
