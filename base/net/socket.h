// Fd, an owned descriptor, and the few socket calls the library makes, with errors in words.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace unisono::net {

struct AlreadyRegistered {};

// Owns a descriptor; close-on-exec; closed in forked children (event_loop.h). Move-only.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd);
  Fd(AlreadyRegistered, int fd)
      : fd_(fd) {}  // made close-on-exec and registered in one step (inside base/net)
  Fd(Fd&& other) noexcept;
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release();  // the caller owns it now (no longer closed in children)
  void reset();

 private:
  int fd_ = -1;
};

// Numeric address of IPv4, IPv6 or an abstract unix name.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  std::string text() const;  // "10.0.0.1:4711", "[fe80::1%eth0]:4711", "unix:name"
};
// Numeric only: "10.0.0.1", "::1", "[::1]", "fe80::1%eth0". kInvalidArgument otherwise.
Result<Address> parse_address(std::string_view host, int port);
Address unix_address(std::string_view name);  // abstract; of `name` the first 107 bytes
Result<std::vector<Address>> resolve_host(const std::string& host,
                                          int port);  // names too; blocking
// Usable addresses of this machine after the filter ("eth0,ib*" or "^docker*,veth*"), best first:
// that of the default route, of hardware, of other interfaces, of bridges; loopback last, and only
// if nothing else or asked for by name; port 0. Empty on a machine without network;
// kInvalidArgument, which lists the choices, if a filter matches nothing.
Result<std::vector<Address>> local_addresses(const std::string& filter);
// "10.0.0.2 (eth0)": where a connected socket leaves this machine. For messages.
std::string describe_local_end(int fd);

Result<Fd> listen_on(const Address& address);  // non-blocking; port chosen by the kernel when 0
Result<Address> bound_address(int fd);
// Non-blocking, EINPROGRESS is ok. kRemoteError: nobody listens at this unix address.
Result<Fd> start_connect(const Address& address);
// Ok, or why this process can open no further descriptor.
Status check_descriptors();
// The next connection of a listener, non-blocking. kInProgress: none is there.
Result<Fd> accept_from(int listener);
// No delay, keepalive: a silent link to a vanished host fails within about half a minute.
void tune_tcp(int fd);
// TCP_USER_TIMEOUT of 30 s, for links whose reader is always reading. Not for data: a peer that
// computes for minutes closes its receive window, and Linux (5.11 and later) counts that against
// the user timeout as well.
void limit_unread_time(int fd);
// One message with descriptors attached, over a unix stream socket. Small messages only;
// kInProgress if it would block.
Status send_with_fds(int fd, std::span<const std::byte> bytes, std::span<const int> fds);
// Receives what is there (at most bytes.size()); appends what descriptors came. 0 bytes: end of
// stream. kInProgress: nothing there.
Result<size_t> receive_with_fds(int fd, std::span<std::byte> bytes, std::vector<Fd>* fds);

}  // namespace unisono::net
