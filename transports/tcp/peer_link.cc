#include "transports/tcp/peer_link.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace unisono::tcp {
namespace {

constexpr size_t kInputBytes = 16384;
// While a long payload arrives, so much of what follows it is read along: the next header without a
// system call of its own, and little that must be copied again.
constexpr size_t kReadAheadBytes = 4096;
constexpr uint32_t kLongPayloadBytes = 32768;

bool would_block(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR;
}

}  // namespace

PeerLink::PeerLink(int32_t peer, LinkState& state) : peer_(peer), state_(state) {}

void PeerLink::attach(net::Fd fd) {
  net::tune_tcp(fd.get());
  if (Status added = state_.waiter->add_fd(fd.get()); !added.ok()) {
    fail(added.annotate(fmt::format("tcp: link to rank {}", peer_)));
    return;
  }
  fd_ = std::move(fd);
  was_up_ = true;
  (void)input_.ensure(kInputBytes, state_);
}

Result<SendChannel*> PeerLink::open_send(uint8_t number, const ChannelShape& shape) {
  auto& sender = senders_[number];
  if (sender == nullptr) sender = std::make_unique<SendChannel>(*this, number, shape);
  if (sender->shape().slots != shape.slots || sender->shape().slice_bytes != shape.slice_bytes) {
    return error(Code::kInvalidArgument, "tcp: channel {} to rank {} was opened in another shape",
                 number, peer_);
  }
  return sender.get();
}

Result<RecvChannel*> PeerLink::open_recv(uint8_t number, const ChannelShape& shape) {
  auto& receiver = receivers_[number];
  if (receiver == nullptr) receiver = std::make_unique<RecvChannel>(*this, number);
  if (!receiver->opened()) {
    const uint64_t bytes = receiver->held_bytes(), messages = receiver->held_messages();
    if (Status opened = receiver->open(shape); !opened.ok()) {
      fail(opened.annotate(fmt::format("tcp: rank {}", peer_)));
      return state_.status;
    }
    unopened_bytes_ -= bytes;
    unopened_messages_ -= messages;
  }
  const ChannelShape& agreed = receiver->shape();
  if (agreed.slots != shape.slots || agreed.slice_bytes != shape.slice_bytes) {
    return error(Code::kInvalidArgument, "tcp: channel {} of rank {} was opened in another shape",
                 number, peer_);
  }
  return receiver.get();
}

Status PeerLink::charge_unopened(uint32_t bytes) {
  unopened_bytes_ += bytes;
  if (unopened_bytes_ > kMaxUnopenedBytes || ++unopened_messages_ > kMaxUnopenedMessages) {
    return error(Code::kRemoteError, "{} B sent on channels that were never opened here",
                 unopened_bytes_);
  }
  return {};
}

bool PeerLink::progress() {
  if (!up() || !state_.status.ok()) return false;
  bool moved = receive();
  if (credit_due_) report_credits(false);
  if (!queue_.empty()) moved |= flush();
  return moved;
}

void PeerLink::arm() {
  if (!up() || !state_.status.ok()) return;
  if (!owing_.empty()) {
    report_credits(true);
    flush();
  }
  const bool wanted = !queue_.empty() && !output_failed_;
  if (up() && wanted != wants_writable_) {
    wants_writable_ = wanted;
    state_.waiter->modify_fd(fd_.get(), wanted);
  }
}

// ---- input ----

// One system call, two where the first read a header and its long payload is still in the kernel.
bool PeerLink::receive() {
  bool moved = false;
  for (int turn = 0; turn < 2; ++turn) {
    iovec parts[2];
    int count = 0;
    size_t direct = 0;
    size_t ahead = kInputBytes;
    if (arriving_ != nullptr) {
      direct = std::min<size_t>(arriving_->missing(), kPieceBytes);
      parts[count++] = {arriving_->landing(), direct};
      if (arriving_->missing() > kLongPayloadBytes) ahead = kReadAheadBytes;
    } else if (input_begin_ != 0) {  // at most a part of a header is left over
      std::memmove(input_.data(), input_.data() + input_begin_, input_end_ - input_begin_);
      input_end_ -= std::exchange(input_begin_, 0);
    }
    const bool whole = arriving_ == nullptr || direct == arriving_->missing();
    if (whole) parts[count++] = {input_.data() + input_end_, ahead - input_end_};
    ssize_t got = 0;
    if (count == 1) {
      got = recv(fd_.get(), parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
    } else {
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = 2;
      got = recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    }
    if (got <= 0) {
      if (got < 0 && would_block(errno)) return moved;
      input_ended(got < 0 ? errno : 0);
      return true;
    }
    moved = true;
    const size_t asked = parts[0].iov_len + (count == 2 ? parts[1].iov_len : 0);
    distribute(static_cast<size_t>(got), direct);
    if (static_cast<size_t>(got) < asked || arriving_ == nullptr || !up()) break;
  }
  return moved;
}

void PeerLink::distribute(size_t bytes, size_t direct) {
  if (direct > 0) {
    const size_t landed = std::min(bytes, direct);
    arriving_->arrived(static_cast<uint32_t>(landed));
    bytes -= landed;
    if (arriving_->missing() == 0) std::exchange(arriving_, nullptr)->finish();
  }
  input_end_ += bytes;
  if (bytes > 0) parse();
}

void PeerLink::parse() {
  while (input_end_ - input_begin_ >= kFrameBytes) {
    FrameHeader frame;
    const std::byte* at = input_.data() + input_begin_;
    Status understood =
        parse_frame(std::span<const std::byte, kFrameBytes>(at, kFrameBytes), &frame);
    if (understood.ok()) understood = handle(frame);
    if (!understood.ok()) {
      fail(understood.annotate(fmt::format("tcp: rank {}", peer_)));
      return;
    }
    input_begin_ += kFrameBytes;
    if (frame.kind != FrameKind::kData) continue;
    RecvChannel& channel = *receivers_[frame.channel];
    const size_t here = std::min<size_t>(frame.bytes, input_end_ - input_begin_);
    if (here > 0) {
      std::memcpy(channel.landing(), input_.data() + input_begin_, here);
      channel.arrived(static_cast<uint32_t>(here));
      input_begin_ += here;
    }
    if (channel.missing() > 0) {
      arriving_ = &channel;
      break;
    }
    channel.finish();
  }
  if (input_begin_ == input_end_) input_begin_ = input_end_ = 0;
}

Status PeerLink::handle(const FrameHeader& frame) {
  if (farewell_received_)
    return error(Code::kRemoteError, "malformed stream: a frame after the last");
  if (frame.has_credit) {
    SendChannel* sender = senders_[frame.credit_channel].get();
    if (sender == nullptr) {
      return error(Code::kRemoteError, "malformed stream: credit for channel {}, never used",
                   frame.credit_channel);
    }
    TRY(sender->credit(frame.released));
  }
  if (frame.kind == FrameKind::kFarewell) farewell_received_ = true;
  if (frame.kind != FrameKind::kData) return {};
  auto& receiver = receivers_[frame.channel];
  if (receiver == nullptr) receiver = std::make_unique<RecvChannel>(*this, frame.channel);
  return receiver->begin(frame);
}

void PeerLink::input_ended(int error_number) {
  // A reset that follows a farewell only says that the peer no longer reads.
  const bool orderly = farewell_received_ && arriving_ == nullptr && input_begin_ == input_end_;
  if (orderly) {
    drop_queue();
    close_socket();
    return;
  }
  const int cause = error_number != 0 ? error_number : output_error_;
  fail(error(Code::kRemoteError,
             "tcp: rank {} closed its link without a farewell: it died or gave up{}{}", peer_,
             cause != 0 ? ": " : "", cause != 0 ? std::strerror(cause) : ""));
}

// ---- output ----

// Bytes that the kernel took, of head and payload.
size_t PeerLink::write_now(std::span<const std::byte, kFrameBytes> head, const std::byte* data,
                           uint32_t bytes) {
  constexpr size_t kInlineBytes =
      1024;  // below, copying beside the header is cheaper than a second part
  ssize_t sent = 0;
  if (bytes <= kInlineBytes) {
    std::array<std::byte, kFrameBytes + kInlineBytes> frame;
    std::memcpy(frame.data(), head.data(), kFrameBytes);
    if (bytes > 0) std::memcpy(frame.data() + kFrameBytes, data, bytes);
    sent = ::send(fd_.get(), frame.data(), kFrameBytes + bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  } else {
    iovec parts[2] = {{const_cast<std::byte*>(head.data()), kFrameBytes},
                      {const_cast<std::byte*>(data), std::min<size_t>(bytes, kPieceBytes)}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    sent = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (sent >= 0) return static_cast<size_t>(sent);
  if (!would_block(errno)) output_broke(errno);
  return 0;
}

bool PeerLink::send(SendChannel& channel, const MessageHeader& header, const std::byte* data,
                    Ownership ownership) {
  Outgoing out;
  FrameHeader frame;
  frame.kind = FrameKind::kData;
  frame.channel = channel.number();
  frame.bytes = header.bytes;
  frame.fingerprint = header.fingerprint;
  out.index = channel.accept();
  frame.sequence = static_cast<uint32_t>(out.index);
  take_credit(&frame);
  encode_frame(frame, out.head);
  if (up() && queue_.empty() && !output_failed_) {
    out.done = write_now(out.head, data, header.bytes);
    if (out.done == kFrameBytes + header.bytes) {
      channel.wrote(out.index, false);
      channel.settle();
      return true;
    }
  }
  out.channel = &channel;
  out.data = data;
  out.bytes = header.bytes;
  if (ownership == Ownership::kCaller && header.bytes > 0) {
    if (header.bytes <= kCopyBytes) {
      out.copy = std::make_unique_for_overwrite<std::byte[]>(header.bytes);
      std::memcpy(out.copy.get(), data, header.bytes);
      out.data = out.copy.get();
    } else {
      out.borrowed = true;
      channel.borrow();
    }
  }
  const bool free = !out.borrowed;
  queue_.push_back(std::move(out));
  if (free) channel.settle();
  return free;
}

// Up to 16 parts and kPieceBytes in one system call.
bool PeerLink::flush() {
  if (!up() || output_failed_ || queue_.empty()) return false;
  std::array<iovec, 16> parts;
  size_t count = 0, offered = 0;
  for (auto out = queue_.begin(); out != queue_.end() && count + 2 <= parts.size(); ++out) {
    if (offered >= kPieceBytes) break;
    size_t done = out->done;
    if (done < kFrameBytes) {
      parts[count++] = {out->head.data() + done, kFrameBytes - done};
      offered += kFrameBytes - done;
      done = kFrameBytes;
    }
    const size_t left = std::min(kFrameBytes + out->bytes - done, kPieceBytes);
    if (left == 0) continue;
    parts[count++] = {const_cast<std::byte*>(out->data) + (done - kFrameBytes), left};
    offered += left;
    if (done + left < kFrameBytes + out->bytes) break;  // cut: nothing may follow it
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t sent = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) {
    if (!would_block(errno)) output_broke(errno);
    return false;
  }
  return settle_written(static_cast<size_t>(sent));
}

bool PeerLink::settle_written(size_t bytes) {
  const bool moved = bytes > 0;
  while (!queue_.empty()) {
    Outgoing& out = queue_.front();
    const size_t left = kFrameBytes + out.bytes - out.done;
    if (bytes < left) {
      out.done += bytes;
      break;
    }
    bytes -= left;
    if (out.channel != nullptr) out.channel->wrote(out.index, out.borrowed);
    queue_.pop_front();
  }
  return moved;
}

// The peer no longer reads. Whether it left in order or died is what its own bytes say: reading
// goes on.
void PeerLink::output_broke(int error_number) {
  output_failed_ = true;
  output_error_ = error_number;
}

// The peer left and discards what it is sent: these messages are complete.
void PeerLink::drop_queue() {
  for (const Outgoing& out : queue_) {
    if (out.channel != nullptr) out.channel->wrote(out.index, out.borrowed);
  }
  queue_.clear();
}

// ---- credit ----

void PeerLink::owe(RecvChannel& channel) {
  if (!channel.owing) {
    channel.owing = true;
    owing_.push_back(&channel);
  }
  if (channel.unreported() * 2 >= channel.shape().slots) credit_due_ = true;
}

void PeerLink::take_credit(FrameHeader* frame) {
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

void PeerLink::report_credits(bool all) {
  credit_due_ = false;
  if (!accepts()) return owing_.clear();  // the peer asks for no more
  // Those that are not urgent wait for a message that takes them along.
  const auto urgent = [all](const RecvChannel* channel) {
    return all || channel->unreported() * 2 >= channel->shape().slots;
  };
  const auto later = std::partition(owing_.begin(), owing_.end(),
                                    [&](const RecvChannel* channel) { return !urgent(channel); });
  for (size_t count = static_cast<size_t>(owing_.end() - later); count > 0; --count) {
    FrameHeader frame;
    frame.kind = FrameKind::kCredit;
    take_credit(&frame);
    Outgoing out;
    encode_frame(frame, out.head);
    if (queue_.empty() && !output_failed_) out.done = write_now(out.head, nullptr, 0);
    if (out.done < kFrameBytes) queue_.push_back(std::move(out));
  }
}

// ---- the end ----

void PeerLink::say_farewell() {
  if (!up() || farewell_sent_ || output_failed_) return;
  FrameHeader frame;
  frame.kind = FrameKind::kFarewell;
  take_credit(&frame);
  Outgoing out;
  encode_frame(frame, out.head);
  queue_.push_back(std::move(out));
  farewell_sent_ = true;
  flush();
}

size_t PeerLink::unsent_messages() const {
  return static_cast<size_t>(std::count_if(
      queue_.begin(), queue_.end(), [](const Outgoing& out) { return out.channel != nullptr; }));
}

void PeerLink::mute() {
  if (up() && !std::exchange(muted_, true)) state_.waiter->remove_fd(fd_.get());
}

net::Fd PeerLink::detach() {
  mute();
  queue_.clear();
  return std::move(fd_);
}

void PeerLink::close_socket() {
  mute();
  fd_.reset();
}

void PeerLink::fail(Status failure) {
  state_.fail(std::move(failure));
  close_socket();
}

}  // namespace unisono::tcp
