#include "transports/tcp/stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transports/tcp/peer_link.h"

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

Stream::Stream(PeerLink& link) : link_(link) {}

Status Stream::attach(net::Fd fd) {
  net::tune_tcp(fd.get());
  TRY(link_.state().waiter->add_fd(fd.get()));
  fd_ = std::move(fd);
  was_up_ = true;
  (void)input_.ensure(kInputBytes, link_.state().memory_bytes);
  return {};
}

bool Stream::progress() {
  if (!up()) return false;
  bool moved = receive();
  if (!queue_.empty()) moved |= flush();
  return moved;
}

void Stream::arm() {
  const bool wanted = !queue_.empty() && !output_failed_;
  if (up() && wanted != wants_writable_) {
    wants_writable_ = wanted;
    link_.state().waiter->modify_fd(fd_.get(), wanted);
  }
}

// ---- input ----

// One system call, two where the first read a header and its long payload is still in the kernel.
bool Stream::receive() {
  bool moved = false;
  for (int turn = 0; turn < 2; ++turn) {
    iovec parts[2];
    int count = 0;
    size_t direct = 0;
    size_t ahead = kInputBytes;
    if (arriving_) {
      direct = std::min<size_t>(arriving_.missing(), kPieceBytes);
      parts[count++] = {arriving_.landing(), direct};
      if (arriving_.missing() > kLongPayloadBytes) ahead = kReadAheadBytes;
    } else if (input_begin_ != 0) {  // at most a part of a header is left over
      std::memmove(input_.data(), input_.data() + input_begin_, input_end_ - input_begin_);
      input_end_ -= std::exchange(input_begin_, 0);
    }
    const bool whole = !arriving_ || direct == arriving_.missing();
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
    if (static_cast<size_t>(got) < asked || !arriving_ || !up()) break;
  }
  return moved;
}

void Stream::distribute(size_t bytes, size_t direct) {
  if (direct > 0) {
    const size_t landed = std::min(bytes, direct);
    arriving_.channel->arrived(arriving_.index, static_cast<uint32_t>(landed));
    bytes -= landed;
    if (arriving_.missing() == 0) std::exchange(arriving_, {}).finish();
  }
  input_end_ += bytes;
  if (bytes > 0) parse();
}

void Stream::parse() {
  while (input_end_ - input_begin_ >= kFrameBytes) {
    FrameHeader frame;
    const std::byte* at = input_.data() + input_begin_;
    Status understood =
        parse_frame(std::span<const std::byte, kFrameBytes>(at, kFrameBytes), &frame);
    Arriving message;
    if (understood.ok()) understood = handle(frame, &message);
    if (!understood.ok()) {
      link_.fail(understood.annotate(fmt::format("tcp: rank {}", link_.peer())));
      return;
    }
    input_begin_ += kFrameBytes;
    if (frame.kind != FrameKind::kData) continue;
    const size_t here = std::min<size_t>(frame.bytes, input_end_ - input_begin_);
    if (here > 0) {
      std::memcpy(message.landing(), input_.data() + input_begin_, here);
      message.channel->arrived(message.index, static_cast<uint32_t>(here));
      input_begin_ += here;
    }
    if (message.missing() > 0) {
      arriving_ = message;
      break;
    }
    message.finish();
  }
  if (input_begin_ == input_end_) input_begin_ = input_end_ = 0;
}

Status Stream::handle(const FrameHeader& frame, Arriving* message) {
  if (farewell_received_)
    return error(Code::kRemoteError, "malformed stream: a frame after the last");
  farewell_received_ = frame.kind == FrameKind::kFarewell;
  return link_.handle(frame, message);
}

void Stream::input_ended(int error_number) {
  // A reset that follows a farewell only says that the peer no longer reads.
  const bool orderly = farewell_received_ && !arriving_ && input_begin_ == input_end_;
  if (orderly) {
    drop_queue();
    close_socket();
    return;
  }
  const int cause = error_number != 0 ? error_number : output_error_;
  link_.fail(error(Code::kRemoteError,
                   "tcp: rank {} closed its link without a farewell: it died or gave up{}{}",
                   link_.peer(), cause != 0 ? ": " : "", cause != 0 ? std::strerror(cause) : ""));
}

// ---- output ----

size_t Stream::write(std::span<const std::byte, kFrameBytes> head, const std::byte* data,
                     uint32_t bytes) {
  return up() && queue_.empty() && !output_failed_ ? write_now(head, data, bytes) : 0;
}

void Stream::enqueue(Outgoing out) {
  out.keep();
  queued_bytes_ += out.unsent();
  queue_.push_back(std::move(out));
}

void Stream::Outgoing::keep() {
  if (!callers || bytes == 0) return;
  if (bytes <= kCopyBytes) {
    copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
    std::memcpy(copy.get(), data, bytes);
    data = copy.get();
  } else {
    borrowed = true;
    channel->borrow();
  }
}

// Bytes that the kernel took, of head and payload.
size_t Stream::write_now(std::span<const std::byte, kFrameBytes> head, const std::byte* data,
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

// Up to 16 parts and kPieceBytes in one system call.
bool Stream::flush() {
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

bool Stream::settle_written(size_t bytes) {
  const bool moved = bytes > 0;
  while (!queue_.empty()) {
    Outgoing& out = queue_.front();
    const size_t left = out.unsent();
    if (bytes < left) {
      out.done += bytes;
      queued_bytes_ -= bytes;
      break;
    }
    bytes -= left;
    queued_bytes_ -= left;
    if (out.channel != nullptr) out.channel->wrote(out.index, out.borrowed);
    queue_.pop_front();
  }
  return moved;
}

// The peer no longer reads. Whether it left in order or died is what its own bytes say: reading
// goes on.
void Stream::output_broke(int error_number) {
  output_failed_ = true;
  output_error_ = error_number;
}

// Nobody waits for these messages: the peer left and discards them, or their operation failed.
void Stream::drop_queue() {
  for (const Outgoing& out : queue_) {
    if (out.channel != nullptr) out.channel->wrote(out.index, out.borrowed);
  }
  queue_.clear();
  queued_bytes_ = 0;
}

// ---- the end ----

// What is not borrowed is given up with it: nothing of an operation that ended in order waits here.
bool Stream::give_up_borrowed() {
  const auto borrowed = [](const Outgoing& out) { return out.borrowed; };
  if (std::none_of(queue_.begin(), queue_.end(), borrowed)) return false;
  drop_queue();
  output_failed_ = true;
  return true;
}

void Stream::say_farewell(Outgoing out) {
  enqueue(std::move(out));
  farewell_sent_ = true;
  flush();
}

size_t Stream::unsent_messages() const {
  return static_cast<size_t>(std::count_if(
      queue_.begin(), queue_.end(), [](const Outgoing& out) { return out.channel != nullptr; }));
}

void Stream::mute() {
  if (up() && !std::exchange(muted_, true)) link_.state().waiter->remove_fd(fd_.get());
}

net::Fd Stream::detach() {
  mute();
  queue_.clear();
  queued_bytes_ = 0;
  return std::move(fd_);
}

void Stream::close_socket() {
  mute();
  fd_.reset();
}

}  // namespace unisono::tcp
