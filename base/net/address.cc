// Addresses: their text and their parsing.
#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "base/net/socket.h"

namespace unisono::net {
namespace {

std::string text_of_v6(const sockaddr_in6& v6) {
  std::array<char, INET6_ADDRSTRLEN> host{};
  ::inet_ntop(AF_INET6, &v6.sin6_addr, host.data(), host.size());
  std::string scope;
  if (v6.sin6_scope_id != 0) {
    std::array<char, IF_NAMESIZE> name{};
    scope = ::if_indextoname(v6.sin6_scope_id, name.data()) != nullptr
                ? fmt::format("%{}", name.data())
                : fmt::format("%{}", v6.sin6_scope_id);
  }
  return fmt::format("[{}{}]:{}", host.data(), scope, ntohs(v6.sin6_port));
}

}  // namespace

std::string Address::text() const {
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    std::array<char, INET_ADDRSTRLEN> host{};
    ::inet_ntop(AF_INET, &v4.sin_addr, host.data(), host.size());
    return fmt::format("{}:{}", host.data(), ntohs(v4.sin_port));
  }
  if (storage.ss_family == AF_INET6) {
    return text_of_v6(reinterpret_cast<const sockaddr_in6&>(storage));
  }
  if (storage.ss_family == AF_UNIX) {
    const auto& local = reinterpret_cast<const sockaddr_un&>(storage);
    constexpr size_t kBeforeName = offsetof(sockaddr_un, sun_path) + 1;
    const size_t bytes = length > kBeforeName ? length - kBeforeName : 0;
    return "unix:" + std::string(&local.sun_path[1], std::min(bytes, sizeof local.sun_path - 1));
  }
  return "unknown address";
}

Address unix_address(std::string_view name) {
  Address address;
  auto& local = reinterpret_cast<sockaddr_un&>(address.storage);
  local.sun_family = AF_UNIX;
  // The first byte stays zero: an abstract name, scoped by network namespace, gone with its last
  // descriptor.
  const size_t bytes = std::min(name.size(), sizeof local.sun_path - 1);
  std::memcpy(&local.sun_path[1], name.data(), bytes);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  return address;
}

static Result<std::vector<Address>> look_up(const std::string& host, int port, int flags) {
  if (port < 0 || port > 65535) {
    return error(Code::kInvalidArgument, "port {} is not between 0 and 65535", port);
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  const int rc = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, [](addrinfo* list) {
    if (list != nullptr) ::freeaddrinfo(list);
  });
  if (rc != 0) {
    return error(Code::kInvalidArgument, "'{}' is no address: {}", host, ::gai_strerror(rc));
  }
  std::vector<Address> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_addrlen > sizeof(sockaddr_storage)) continue;
    Address address;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
    addresses.push_back(address);
  }
  if (addresses.empty()) return error(Code::kInvalidArgument, "'{}' has no address", host);
  return addresses;
}

Result<Address> parse_address(std::string_view host, int port) {
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  // Longer than any numeric address; a zero byte would hide the rest from getaddrinfo.
  if (host.empty() || host.size() > 128 || host.find('\0') != std::string_view::npos) {
    return Status(Code::kInvalidArgument, "not a numeric address");
  }
  TRY_ASSIGN(const std::vector<Address> found, look_up(std::string(host), port, AI_NUMERICHOST));
  return found.front();
}

Result<std::vector<Address>> resolve_host(const std::string& host, int port) {
  return look_up(host, port, 0);
}

}  // namespace unisono::net
