#include "transports/ucx/link.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/log.h"
#include "transports/ucx/core.h"

namespace unisono::ucx {
namespace {

// What UCX uses for an endpoint, in its own words; 1.13 has no other way to learn it.
std::string lanes_of(ucp_ep_h endpoint) {
  char* text = nullptr;
  size_t bytes = 0;
  std::FILE* stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return "";
  library().ucp_ep_print_info(endpoint, stream);
  std::fclose(stream);
  std::string lanes(text, bytes);
  std::free(text);
  return lanes;
}

}  // namespace

Status Link::open() {
  if (endpoint_ != nullptr) return {};
  if (broken_) return error(Code::kRemoteError, "ucx: the link to rank {} has ended", peer_);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(core_.peer(peer_).worker.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = failed;
  params.err_handler.arg = this;
  const ucs_status_t status = library().ucp_ep_create(core_.worker(), &params, &endpoint_);
  if (status == UCS_OK) {
    const std::string lanes = lanes_of(endpoint_);
    over_sockets_ =
        lanes.find("tcp/") != std::string::npos || lanes.find("lane[") == std::string::npos;
    log_debug("ucx: rank {}: {}", peer_, lanes);
    return {};
  }
  endpoint_ = nullptr;
  return ucx_error(Code::kRemoteError, status, fmt::format("ucx: no link to rank {}", peer_));
}

Result<SendChannel*> Link::open_send(uint8_t number, const ChannelShape& shape) {
  auto& sender = senders_[number];
  if (sender == nullptr) sender = std::make_unique<SendChannel>(*this, number, shape);
  if (sender->shape().slots != shape.slots || sender->shape().slice_bytes != shape.slice_bytes) {
    return error(Code::kInvalidArgument, "ucx: channel {} to rank {} was opened in another shape",
                 number, peer_);
  }
  return sender.get();
}

Result<RecvChannel*> Link::open_recv(uint8_t number, const ChannelShape& shape) {
  auto& receiver = receivers_[number];
  if (receiver == nullptr) receiver = std::make_unique<RecvChannel>(*this, number);
  if (!receiver->opened()) {
    if (Status opened = receiver->open(shape); !opened.ok()) {
      core_.fail(opened.annotate(fmt::format("ucx: rank {}", peer_)));
      return core_.status();
    }
    unopened_bytes_ -= receiver->held_bytes();
    unopened_messages_ -= receiver->held_messages();
  }
  const ChannelShape& agreed = receiver->shape();
  if (agreed.slots != shape.slots || agreed.slice_bytes != shape.slice_bytes) {
    return error(Code::kInvalidArgument, "ucx: channel {} of rank {} was opened in another shape",
                 number, peer_);
  }
  return receiver.get();
}

Status Link::charge_unopened(uint32_t bytes) {
  unopened_bytes_ += bytes;
  if (unopened_bytes_ > kMaxUnopenedBytes || ++unopened_messages_ > kMaxUnopenedMessages) {
    return error(Code::kRemoteError, "{} B sent on channels that were never opened here",
                 unopened_bytes_);
  }
  return {};
}

Status Link::receive(const Frame& frame, const Delivery& delivery, bool* kept) {
  heard_ = true;
  if (farewell_received_) {
    if (frame.kind == FrameKind::kFarewell) return {};  // said again: see settled()
    return error(Code::kRemoteError, "a message after the last");
  }
  if (frame.has_credit) {
    SendChannel* sender = senders_[frame.credit_channel].get();
    if (sender == nullptr) {
      return error(Code::kRemoteError, "credit for channel {}, never used", frame.credit_channel);
    }
    TRY(sender->credit(frame.released));
  }
  if (frame.kind == FrameKind::kData) {
    auto& receiver = receivers_[frame.channel];
    if (receiver == nullptr) receiver = std::make_unique<RecvChannel>(*this, frame.channel);
    return receiver->take(frame, delivery, kept);
  }
  if (delivery.bytes != 0 || delivery.announced) {
    return error(Code::kRemoteError, "{} B behind a frame without a message", delivery.bytes);
  }
  if (frame.kind == FrameKind::kFarewell) farewell_received_ = true;
  return {};
}

// ---- sending ----

bool Link::accepts() const {
  return endpoint_ != nullptr && !broken_ && !farewell_sent_ && !farewell_received_ &&
         core_.status().ok();
}

void Link::complete_frame(Frame* frame) {
  frame->writer = core_.rank();
  frame->token = core_.peer(peer_).token;
  if (owing_.empty()) return;
  RecvChannel* channel = owing_.back();
  owing_.pop_back();
  channel->owing = false;
  channel->reported();
  frame->has_credit = true;
  frame->credit_channel = channel->number();
  frame->released = static_cast<uint32_t>(channel->released());
  if (owing_.empty()) credit_due_ = false;
}

Link::Sent Link::send(const std::byte* head, size_t head_bytes, const void* data, size_t bytes,
                      ucp_send_nbx_callback_t done, void* argument) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = done;
  param.user_data = argument;
  dirty_ = used_ = true;
  ucs_status_ptr_t request =
      library().ucp_am_send_nbx(endpoint_, kMessageId, head, head_bytes, data, bytes, &param);
  if (request == nullptr) return Sent::kDone;
  if (UCS_PTR_IS_ERR(request)) {
    failed(this, endpoint_, UCS_PTR_STATUS(request));
    return Sent::kFailed;
  }
  ++pending_;
  return Sent::kPending;
}

void Link::send_is_over(void* request, ucs_status_t status) {
  --pending_;
  if (status != UCS_OK) failed(this, endpoint_, status);
  library().ucp_request_free(request);
}

Link::Sent Link::say(FrameKind kind) {
  if (endpoint_ == nullptr || broken_) return Sent::kFailed;
  std::unique_ptr<Word> word;
  if (words_.empty()) {
    word = std::make_unique<Word>();
    word->link = this;
  } else {
    word = std::move(words_.back());
    words_.pop_back();
  }
  Frame frame;
  frame.kind = kind;
  complete_frame(&frame);
  encode_frame(frame, word->bytes);
  const Sent sent = send(nullptr, 0, word->bytes.data(), kFrameBytes, said, word.get());
  if (sent == Sent::kPending) {
    (void)word.release();  // said() takes it back
  } else {
    words_.push_back(std::move(word));
  }
  return sent;
}

void Link::said(void* request, ucs_status_t status, void* user) {
  std::unique_ptr<Word> word(static_cast<Word*>(user));
  Link& self = *word->link;
  self.words_.push_back(std::move(word));
  self.send_is_over(request, status);
}

// ---- credit ----

void Link::owe(RecvChannel& channel) {
  if (!channel.owing) {
    channel.owing = true;
    owing_.push_back(&channel);
  }
  if (channel.unreported() * 2 >= channel.shape().slots) credit_due_ = true;
}

void Link::report_credits(bool all) {
  credit_due_ = false;
  if (!accepts()) return;
  // Those that are not urgent wait for a message that takes them along.
  const auto urgent = [all](const RecvChannel* channel) {
    return all || channel->unreported() * 2 >= channel->shape().slots;
  };
  const auto later = std::partition(owing_.begin(), owing_.end(),
                                    [&](const RecvChannel* channel) { return !urgent(channel); });
  for (auto count = owing_.end() - later; count > 0; --count) say(FrameKind::kCredit);
}

// ---- the end ----

// A send that is over has reached the peer's memory or the device, but for sockets: there a small
// one is over when UCX has copied it, and the socket may be full. A flush tells, but waits until
// the peer's program drives UCX, which may be long after its operation. So another message is the
// test: UCX takes it at once only when all before it is the kernel's, and if it does not, its end
// says so.
bool Link::settled() {
  if (endpoint_ == nullptr || broken_) return true;
  if (pending_ > 0) return false;
  if (!dirty_) return true;
  const Sent sent = !over_sockets_
                        ? Sent::kDone
                        : say(farewell_sent_ ? FrameKind::kFarewell : FrameKind::kCredit);
  dirty_ = false;
  return sent != Sent::kPending;
}

void Link::say_farewell() {
  if (farewell_sent_ || broken_ || farewell_received_ || (!heard_ && !used_)) return;
  if (!open().ok()) return;
  say(FrameKind::kFarewell);
  farewell_sent_ = true;
}

// UCX calls it once for an endpoint that it gives up, and our own sends say the same.
void Link::failed(void* user, ucp_ep_h, ucs_status_t status) {
  Link& self = *static_cast<Link*>(user);
  if (std::exchange(self.broken_, true) || self.farewell_received_) return;
  if (self.farewell_sent_) {
    log_debug("ucx: the link to rank {} ended after our farewell: {}", self.peer_,
              library().ucs_status_string(status));
    return;
  }
  self.core_.suspect(
      ucx_error(Code::kRemoteError, status,
                fmt::format("ucx: rank {} ended its link without a farewell: it died or gave up",
                            self.peer_)));
}

void Link::drop_messages() {
  for (const auto& receiver : receivers_) {
    if (receiver != nullptr) receiver->drop_messages();
  }
}

void* Link::shut() {
  if (endpoint_ == nullptr) return nullptr;
  broken_ = true;  // what ends now is no news
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  ucs_status_ptr_t request = library().ucp_ep_close_nbx(std::exchange(endpoint_, nullptr), &param);
  return UCS_PTR_IS_PTR(request) ? request : nullptr;
}

}  // namespace unisono::ucx
