#include "base/net/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/net/event_loop.h"
#include "base/net/fork_registry.h"

namespace unisono::net {
namespace {

constexpr int kBacklog = 4096;  // the kernel lowers it to net.core.somaxconn
constexpr size_t kMaxMessageBytes = 4096;
constexpr size_t kMaxMessageFds = 16;

Status would_block() {
  return Status(Code::kInProgress, "the socket would block");
}

// A stream socket that no fork() in between can leak into a child. -1 with errno.
int make_socket(int family) {
  ForkLock lock;
  const int fd = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int error_number = errno;
  lock.close_in_child(fd);
  errno = error_number;
  return fd;
}

void set_option(int fd, int level, int name, int value) {
  // Best effort: a kernel or a socket type without the option works without it.
  (void)::setsockopt(fd, level, name, &value, sizeof value);
}

}  // namespace

Fd::Fd(int fd) : fd_(fd) {
  if (fd < 0) return;
  const int flags = ::fcntl(fd, F_GETFD);
  if (flags >= 0 && (flags & FD_CLOEXEC) == 0) (void)::fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
  close_in_child(fd);
}
Fd::Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}
Fd::~Fd() {
  reset();
}

int Fd::release() {
  forget_in_child(fd_);
  return std::exchange(fd_, -1);
}

void Fd::reset() {
  // A forked child has closed it, and the number may be another file's by now.
  if (fd_ >= 0 && unregister_descriptor(fd_)) ::close(fd_);
  fd_ = -1;
}

Result<Fd> listen_on(const Address& address) {
  const auto* raw = reinterpret_cast<const sockaddr*>(&address.storage);
  Fd fd(make_socket(raw->sa_family));
  if (!fd.valid()) return system_error(errno, "socket for " + address.text());
  bool fixed_port = false;
  if (raw->sa_family == AF_INET6) {
    set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
    fixed_port = reinterpret_cast<const sockaddr_in6*>(raw)->sin6_port != 0;
  } else if (raw->sa_family == AF_INET) {
    fixed_port = reinterpret_cast<const sockaddr_in*>(raw)->sin_port != 0;
  }
  // Without it a restarted job could not take its port again while old connections linger.
  if (fixed_port) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd.get(), raw, address.length) != 0) {
    return system_error(errno, "bind to " + address.text());
  }
  if (::listen(fd.get(), kBacklog) != 0) return system_error(errno, "listen on " + address.text());
  return fd;
}

Result<Address> bound_address(int fd) {
  Address address;
  address.length = sizeof address.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return system_error(errno, "getsockname");
  }
  return address;
}

Result<Fd> start_connect(const Address& address) {
  const auto* raw = reinterpret_cast<const sockaddr*>(&address.storage);
  Fd fd(make_socket(raw->sa_family));
  if (!fd.valid()) return system_error(errno, "socket for " + address.text());
  if (::connect(fd.get(), raw, address.length) != 0 && errno != EINPROGRESS) {
    const int number = errno;
    const Status status = system_error(number, "connect to " + address.text());
    const bool nobody = number == ECONNREFUSED && raw->sa_family == AF_UNIX;
    return nobody ? Status(Code::kRemoteError, status.message()) : status;
  }
  return fd;
}

Status check_descriptors() {
  const Fd one(::open("/", O_PATH | O_CLOEXEC));
  return one.valid() ? ok_status() : system_error(errno, "a descriptor");
}

Result<Fd> accept_from(int listener) {
  for (;;) {
    ForkLock lock;
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    const int error_number = errno;
    lock.close_in_child(fd);
    if (fd >= 0) return Fd(AlreadyRegistered{}, fd);
    if (error_number == EINTR || error_number == ECONNABORTED) continue;
    if (error_number == EAGAIN) return would_block();
    return system_error(error_number, "accept");
  }
}

void tune_tcp(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // A host that vanished without a word is noticed after 15 + 3 x 5 seconds of silence.
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

void limit_unread_time(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

Status send_with_fds(int fd, std::span<const std::byte> bytes, std::span<const int> fds) {
  if (bytes.empty() || bytes.size() > kMaxMessageBytes || fds.size() > kMaxMessageFds) {
    return error(Code::kInvalidArgument, "a message of {} bytes and {} descriptors cannot be sent",
                 bytes.size(), fds.size());
  }
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxMessageFds * sizeof(int))> control{};
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return would_block();
  if (sent < 0) return system_error(errno, "sendmsg");
  // A unix stream takes so small a message whole or not at all.
  if (static_cast<size_t>(sent) != bytes.size()) {
    return error(Code::kSystemError, "sendmsg took {} of {} bytes", sent, bytes.size());
  }
  return ok_status();
}

Result<size_t> receive_with_fds(int fd, std::span<std::byte> bytes, std::vector<Fd>* fds) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxMessageFds * sizeof(int))> control{};
  iovec piece{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t received = 0;
  int error_number = 0;
  std::vector<Fd> found;
  {
    ForkLock lock;
    do {
      received = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
      error_number = errno;
    } while (received < 0 && error_number == EINTR);
    if (received >= 0) {
      for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
           header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
          int one = -1;
          std::memcpy(&one, CMSG_DATA(header) + i * sizeof(int), sizeof one);
          lock.close_in_child(one);
          found.emplace_back(AlreadyRegistered{}, one);
        }
      }
    }
  }
  if (received < 0 && (error_number == EAGAIN || error_number == EWOULDBLOCK)) return would_block();
  if (received < 0) return system_error(error_number, "recvmsg");
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return Status(Code::kSystemError, "recvmsg: more descriptors than allowed, or too many open");
  }
  if (fds != nullptr) {
    for (Fd& one : found) fds->push_back(std::move(one));
  }
  return static_cast<size_t>(received);
}

}  // namespace unisono::net
