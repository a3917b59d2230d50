// HandshakeLink: one stream on the event loop until its handshake has ended.
#pragma once

#include <cstdint>
#include <functional>

#include "base/net/auth.h"
#include "base/net/event_loop.h"
#include "base/net/socket.h"
#include "base/status.h"

namespace unisono::net {

int64_t monotonic_ns();
Handshake::Nonce fresh_nonce();
// Whether the other end of a unix socket runs as our user.
bool same_user(int unix_fd);
// What an authenticated TCP link of this purpose needs beyond tune_tcp().
void tune_for(Purpose purpose, int tcp_fd);

// Lives on the loop's thread: made, used and destroyed there.
class HandshakeLink {
 public:
  // `changed` runs at kProved, kDone and kFailed, also from within confirm(); it may destroy the
  // link.
  HandshakeLink(EventLoop& loop, Fd fd, bool is_unix, Handshake handshake,
                std::function<void()> changed);
  ~HandshakeLink();
  HandshakeLink(const HandshakeLink&) = delete;
  HandshakeLink& operator=(const HandshakeLink&) = delete;

  // Fails (kTimeout) if the handshake has not ended at the deadline. `connecting`: connect() is
  // under way.
  Status start(bool connecting, int64_t deadline_ns);
  void confirm();
  Handshake::State state() const {
    return failed_ ? Handshake::State::kFailed : handshake_.state();
  }
  const Status& error() const { return error_; }
  const HandshakeFields& fields() const { return handshake_.fields(); }
  bool is_unix() const { return is_unix_; }
  Fd take();  // at kDone: the stream, no longer watched

 private:
  void on_event();
  void pump();
  bool flush();  // false: failed or would block
  void fail(Status status);
  void unwatch();

  EventLoop& loop_;
  Fd fd_;
  const bool is_unix_;
  bool connecting_ = false;
  bool failed_ = false;
  bool wants_write_ = false;
  Handshake handshake_;
  std::function<void()> changed_;
  Status error_;
  EventLoop::Id watch_ = 0;
  EventLoop::Id timer_ = 0;
};

}  // namespace unisono::net
