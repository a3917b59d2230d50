// What Endpoint::address() says: where a rank listens and on which host, as a compact blob that
// peers validate.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/endpoint.h"
#include "base/net/socket.h"
#include "base/status.h"

namespace unisono::net {

inline constexpr size_t kMaxPublishedAddresses = 48;

// Which machine this is. Hints: only a handshake proves anything.
struct HostIdentity {
  uint64_t host = 0;  // UNISONO_HOSTID, or boot and network namespace
  uint64_t network =
      0;  // boot and network namespace alone: whether loopback and abstract unix names reach
  bool operator==(const HostIdentity&) const = default;
};
HostIdentity host_identity();

struct EndpointAddress {
  HostIdentity identity;
  uint64_t unix_token = 0;  // of unix_name(), 0: no unix socket
  std::vector<Address> tcp;
};
std::string unix_name(uint64_t token);

// At most kMaxAddressBytes; addresses beyond kMaxPublishedAddresses are left out. IPv4 takes 7
// bytes, IPv6 23, the rest 26.
std::string encode_address(const EndpointAddress& address);
// A peer's bytes: kInvalidArgument for anything that encode_address() would not have written.
Result<EndpointAddress> decode_address(std::string_view bytes);

bool is_loopback(const Address& address);
bool is_link_local(const Address& address);  // IPv6: means nothing without a local interface

}  // namespace unisono::net
