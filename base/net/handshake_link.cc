#include "base/net/handshake_link.h"

#include <sodium.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <utility>

namespace unisono::net {

int64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Handshake::Nonce fresh_nonce() {
  Handshake::Nonce nonce{};
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

bool same_user(int unix_fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(unix_fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == ::geteuid();
}

void tune_for(Purpose purpose, int tcp_fd) {
  if (purpose == Purpose::kControl || purpose == Purpose::kRendezvous) limit_unread_time(tcp_fd);
}

HandshakeLink::HandshakeLink(EventLoop& loop, Fd fd, bool is_unix, Handshake handshake,
                             std::function<void()> changed)
    : loop_(loop),
      fd_(std::move(fd)),
      is_unix_(is_unix),
      handshake_(handshake),
      changed_(std::move(changed)) {}

HandshakeLink::~HandshakeLink() {
  unwatch();
}

Status HandshakeLink::start(bool connecting, int64_t deadline_ns) {
  connecting_ = connecting;
  wants_write_ = connecting;
  TRY_ASSIGN(watch_, loop_.add_fd(fd_.get(), connecting ? EPOLLOUT : EPOLLIN,
                                  [this](uint32_t) { on_event(); }));
  timer_ = loop_.add_timer(deadline_ns, [this] { fail(Status(Code::kTimeout, "no answer")); });
  return ok_status();
}

void HandshakeLink::on_event() {
  if (connecting_) {
    int error_number = 0;
    socklen_t length = sizeof error_number;
    if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error_number, &length) != 0) {
      error_number = errno;
    }
    if (error_number != 0) return fail(system_error(error_number, "connect"));
    if (is_unix_ && !same_user(fd_.get())) {
      return fail(Status(Code::kSystemError, "the socket belongs to another user"));
    }
    connecting_ = false;
    if (!is_unix_) tune_tcp(fd_.get());
  }
  pump();
}

bool HandshakeLink::flush() {
  while (!handshake_.unsent().empty()) {
    const auto bytes = handshake_.unsent();
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      handshake_.sent(static_cast<size_t>(sent));
      continue;
    }
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    fail(system_error(errno, "send"));
    return false;
  }
  const bool want = !handshake_.unsent().empty();
  if (want != wants_write_) loop_.modify_fd(watch_, want ? EPOLLIN | EPOLLOUT : EPOLLIN);
  wants_write_ = want;
  return !want;
}

// Every path that calls changed_ returns at once: the link may be gone.
void HandshakeLink::pump() {
  for (;;) {
    if (!flush()) return;
    if (handshake_.state() == Handshake::State::kDone) {
      const auto changed = changed_;
      return changed();
    }
    unsigned char bytes[Handshake::kAcceptBytes];
    const size_t wanted = handshake_.wanted();
    // At kProved nothing is read; the end of the stream still shows: a dialler whose reserve link
    // ended drops it.
    const ssize_t got = ::recv(fd_.get(), bytes, wanted > 0 ? wanted : 1,
                               wanted > 0 ? MSG_DONTWAIT : MSG_DONTWAIT | MSG_PEEK);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got < 0) return fail(system_error(errno, "receive"));
    if (got == 0) return fail(Status(Code::kSystemError, "closed during the handshake"));
    if (wanted == 0) return fail(Status(Code::kSystemError, "spoke out of turn"));
    handshake_.feed({bytes, static_cast<size_t>(got)});
    if (handshake_.state() == Handshake::State::kFailed) {
      return fail(Status(Code::kSystemError, "the handshake failed: another secret, job or rank"));
    }
    if (handshake_.state() == Handshake::State::kProved) {
      const auto changed = changed_;
      return changed();
    }
  }
}

void HandshakeLink::confirm() {
  if (failed_) return;
  handshake_.confirm();
  pump();
}

void HandshakeLink::fail(Status status) {
  if (failed_) return;
  failed_ = true;
  error_ = std::move(status);
  unwatch();
  fd_.reset();
  const auto changed = changed_;
  changed();
}

void HandshakeLink::unwatch() {
  if (watch_ != 0) loop_.remove(std::exchange(watch_, 0));
  if (timer_ != 0) loop_.remove(std::exchange(timer_, 0));
}

Fd HandshakeLink::take() {
  unwatch();
  return std::move(fd_);
}

}  // namespace unisono::net
