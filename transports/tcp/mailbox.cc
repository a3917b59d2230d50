#include "transports/tcp/mailbox.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "transports/tcp/frame.h"

namespace unisono::tcp {
namespace {

// Reads and discards what is there. False: the stream has ended.
bool discard(int fd) {
  std::array<std::byte, 16384> bytes;
  for (int turn = 0; turn < 64; ++turn) {
    const ssize_t got = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) continue;
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  }
  return true;
}

// Kept alive by its callbacks in the loop; everything but the constructor runs on the loop's
// thread.
class Retired : public std::enable_shared_from_this<Retired> {
 public:
  Retired(net::EventLoop& loop, net::Fd fd) : loop_(loop), fd_(std::move(fd)) {}

  void start() {
    auto self = shared_from_this();
    auto added = loop_.add_fd(fd_.get(), EPOLLIN, [self](uint32_t) {
      auto keep = self;  // finish() may destroy this callback
      if (!discard(keep->fd_.get())) keep->finish();
    });
    if (!added.ok()) return fd_.reset();
    reading_ = *added;
    timer_ = loop_.add_timer(real_env().now_ns() + kLingerNs, [self] {
      auto keep = self;
      keep->finish();
    });
  }

 private:
  void finish() {
    if (!fd_.valid()) return;
    loop_.remove(reading_);
    fd_.reset();
    loop_.remove(timer_);
  }

  net::EventLoop& loop_;
  net::Fd fd_;
  net::EventLoop::Id reading_ = 0, timer_ = 0;
};

}  // namespace

void Mailbox::deliver(int32_t peer, Result<net::Fd> fd) {
  std::unique_lock lock(mutex_);
  if (waiter_ != nullptr) {
    arrivals_.push_back({peer, std::move(fd)});
    waiting_.store(true, std::memory_order_release);
    waiter_->notify();
    return;
  }
  lock.unlock();
  if (fd.ok()) retire(loop_, std::move(*fd), true);
}

std::vector<Arrival> Mailbox::take() {
  std::lock_guard lock(mutex_);
  waiting_.store(false, std::memory_order_relaxed);
  return std::exchange(arrivals_, {});
}

void Mailbox::close() {
  std::vector<Arrival> late;
  {
    std::lock_guard lock(mutex_);
    waiter_ = nullptr;
    late = std::exchange(arrivals_, {});
  }
  for (Arrival& arrival : late) {
    if (arrival.fd.ok()) retire(loop_, std::move(*arrival.fd), true);
  }
}

void retire(net::EventLoop& loop, net::Fd fd, bool farewell) {
  if (farewell) {
    std::array<std::byte, kFrameBytes> bytes;
    FrameHeader header;
    header.kind = FrameKind::kFarewell;
    encode_frame(header, bytes);
    (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  shutdown(fd.get(), SHUT_WR);
  if (!discard(fd.get())) return;  // the peer has ended already
  auto retired = std::make_shared<Retired>(loop, std::move(fd));
  loop.post([retired] { retired->start(); });
}

}  // namespace unisono::tcp
