#include "base/net/endpoint_address.h"

#include <netinet/in.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include "base/config.h"

namespace unisono::net {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint8_t kFamilyV4 = 4;
constexpr uint8_t kFamilyV6 = 6;

void put(std::string* out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) out->push_back(static_cast<char>(value >> (8 * i)));
}

// Reads from a peer's bytes; after the first lack of bytes everything is zero and `ok` false.
struct Reader {
  std::string_view left;
  bool ok = true;

  std::string_view bytes(size_t count) {
    if (left.size() < count) ok = false;
    if (!ok) return {};
    const std::string_view taken = left.substr(0, count);
    left.remove_prefix(count);
    return taken;
  }
  uint64_t number(size_t count) {
    uint64_t value = 0;
    const std::string_view taken = bytes(count);
    for (size_t i = 0; i < taken.size(); i++) {
      value |= uint64_t{static_cast<unsigned char>(taken[i])} << (8 * i);
    }
    return value;
  }
};

uint64_t hash(std::string_view text) {
  uint64_t value = 0;
  std::array<unsigned char, crypto_generichash_BYTES_MIN> digest{};
  crypto_generichash(digest.data(), digest.size(),
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(), nullptr, 0);
  std::memcpy(&value, digest.data(), sizeof value);
  return value;
}

std::string network_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space {};
  if (boot.empty() || ::stat("/proc/self/ns/net", &space) != 0) {
    // Without /proc nothing tells this machine from others: be a machine of its own, others reach
    // it by TCP.
    uint64_t token = 0;
    randombytes_buf(&token, sizeof token);
    return fmt::format("unknown {:x}", token);
  }
  return fmt::format("{} {}", boot, space.st_ino);
}

Address read_tcp(Reader* reader) {
  Address address;
  const uint64_t family = reader->number(1);
  const uint16_t port = htons(static_cast<uint16_t>(reader->number(2)));
  if (port == 0) reader->ok = false;
  if (family == kFamilyV4) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    v4.sin_family = AF_INET;
    v4.sin_port = port;
    const std::string_view host = reader->bytes(sizeof v4.sin_addr);
    std::copy(host.begin(), host.end(), reinterpret_cast<char*>(&v4.sin_addr));
    address.length = sizeof v4;
  } else if (family == kFamilyV6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = port;
    const std::string_view host = reader->bytes(sizeof v6.sin6_addr);
    std::copy(host.begin(), host.end(), reinterpret_cast<char*>(&v6.sin6_addr));
    v6.sin6_scope_id = static_cast<uint32_t>(reader->number(4));
    address.length = sizeof v6;
  } else {
    reader->ok = false;
  }
  return address;
}

}  // namespace

HostIdentity host_identity() {
  const std::string network = network_identity();
  const std::string& given = environment().host_id;
  HostIdentity identity;
  identity.network = hash("network " + network);
  identity.host = given.empty() ? hash("host " + network) : hash("given " + given);
  return identity;
}

std::string unix_name(uint64_t token) {
  return fmt::format("unisono-{:016x}", token);
}

std::string encode_address(const EndpointAddress& address) {
  std::string out;
  const size_t count = std::min(address.tcp.size(), kMaxPublishedAddresses);
  put(&out, kVersion, 1);
  put(&out, address.identity.host, 8);
  put(&out, address.identity.network, 8);
  put(&out, address.unix_token, 8);
  put(&out, count, 1);
  for (size_t i = 0; i < count; i++) {
    const sockaddr_storage& storage = address.tcp[i].storage;
    if (storage.ss_family == AF_INET) {
      const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
      put(&out, kFamilyV4, 1);
      put(&out, ntohs(v4.sin_port), 2);
      out.append(reinterpret_cast<const char*>(&v4.sin_addr), sizeof v4.sin_addr);
    } else {
      CHECK(storage.ss_family == AF_INET6);
      const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
      put(&out, kFamilyV6, 1);
      put(&out, ntohs(v6.sin6_port), 2);
      out.append(reinterpret_cast<const char*>(&v6.sin6_addr), sizeof v6.sin6_addr);
      put(&out, v6.sin6_scope_id, 4);
    }
  }
  CHECK(out.size() <= kMaxAddressBytes);
  return out;
}

Result<EndpointAddress> decode_address(std::string_view bytes) {
  Reader reader{bytes};
  EndpointAddress address;
  const uint64_t version = reader.number(1);
  address.identity.host = reader.number(8);
  address.identity.network = reader.number(8);
  address.unix_token = reader.number(8);
  const uint64_t count = reader.number(1);
  if (!reader.ok || version != kVersion || count > kMaxPublishedAddresses) {
    return error(Code::kInvalidArgument, "not an endpoint's address ({} bytes)", bytes.size());
  }
  for (uint64_t i = 0; i < count && reader.ok; i++) address.tcp.push_back(read_tcp(&reader));
  if (!reader.ok || !reader.left.empty()) {
    return error(Code::kInvalidArgument, "not an endpoint's address ({} bytes)", bytes.size());
  }
  return address;
}

bool is_loopback(const Address& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (address.storage.ss_family != AF_INET6) return false;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr) !=
         0;
}

bool is_link_local(const Address& address) {
  if (address.storage.ss_family != AF_INET6) return false;
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr) !=
         0;
}

}  // namespace unisono::net
