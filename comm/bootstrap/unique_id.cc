#include "comm/bootstrap/unique_id.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace unisono::bootstrap {
namespace {

constexpr std::string_view kMagic = "Uni\x01";  // the last byte is the layout's version
constexpr size_t kCheckedBytes = 120;           // what the checksum in the last 8 covers
enum Family : uint8_t { kNone = 0, kIpv4 = 4, kIpv6 = 6 };

void ensure_sodium() {
  static const bool kReady = sodium_init() >= 0;
  CHECK(kReady);
}

void put_address(ByteWriter& writer, const net::Address& address) {
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address.storage, sizeof(v4));
    writer.put<uint8_t>(kIpv4);
    writer.put(ntohs(v4.sin_port));
    writer.put_bytes({reinterpret_cast<const char*>(&v4.sin_addr), 4});
    writer.put_bytes(std::string(12, '\0'));
  } else {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address.storage, sizeof(v6));
    writer.put<uint8_t>(kIpv6);
    writer.put(ntohs(v6.sin6_port));
    writer.put_bytes({reinterpret_cast<const char*>(&v6.sin6_addr), 16});
  }
}

// A link-local address means something only together with an interface of whoever reads it. All of
// one id share it: rank 0 was found there.
uint32_t scope_of(const std::vector<net::Address>& addresses) {
  for (const net::Address& address : addresses) {
    if (address.storage.ss_family != AF_INET6) continue;
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address.storage, sizeof(v6));
    if (v6.sin6_scope_id != 0) return v6.sin6_scope_id;
  }
  return 0;
}

// False: no such family.
bool get_address(ByteReader& reader, uint32_t scope, std::vector<net::Address>& addresses) {
  const auto family = reader.get<uint8_t>();
  const auto port = reader.get<uint16_t>();
  const std::string_view raw = reader.get_bytes(16);
  net::Address address;
  if (family == kNone) return true;
  if (family == kIpv4) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, raw.data(), 4);
    std::memcpy(&address.storage, &v4, sizeof(v4));
    address.length = sizeof(v4);
  } else if (family == kIpv6) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&v6.sin6_addr, raw.data(), 16);
    if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) v6.sin6_scope_id = scope;
    std::memcpy(&address.storage, &v6, sizeof(v6));
    address.length = sizeof(v6);
  } else {
    return false;
  }
  addresses.push_back(address);
  return true;
}

uint64_t checksum(std::string_view bytes) {
  ensure_sodium();
  unsigned char hash[crypto_generichash_BYTES_MIN];
  crypto_generichash(hash, sizeof(hash), reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size(), nullptr, 0);
  uint64_t sum = 0;
  std::memcpy(&sum, hash, sizeof(sum));
  return sum;
}

// Lower is better: which addresses other hosts can most likely reach.
int address_rank(const net::Address& address) {
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address.storage, sizeof(v4));
    const uint32_t host = ntohl(v4.sin_addr.s_addr);
    if (host >> 24 == 127) return 4;
    return host >> 16 == 0xa9fe ? 3 : 0;  // 169.254/16: link-local
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, &address.storage, sizeof(v6));
  if (IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr)) return 5;
  // A link-local address needs the reader's own interface number, which an id cannot hold.
  return IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) ? 6 : 1;
}

}  // namespace

UniqueId encode_id(const IdFields& fields) {
  CHECK(fields.addresses.size() <= kMaxIdAddresses);
  ByteWriter writer;
  writer.put_bytes(kMagic);
  writer.put<uint32_t>(scope_of(fields.addresses));
  writer.put(fields.job);
  writer.put_bytes(as_text(fields.secret));
  writer.put(fields.unix_number);
  for (const net::Address& address : fields.addresses) put_address(writer, address);
  std::string bytes = writer.take();
  bytes.resize(kCheckedBytes, '\0');
  ByteWriter tail;
  tail.put(checksum(bytes));
  bytes += tail.take();
  UniqueId id;
  CHECK(bytes.size() == id.bytes.size());
  std::copy(bytes.begin(), bytes.end(), id.bytes.begin());
  return id;
}

Result<IdFields> decode_id(const UniqueId& id) {
  ByteReader reader({id.bytes.data(), id.bytes.size()});
  const std::string_view magic = reader.get_bytes(kMagic.size());
  if (magic.substr(0, 3) != kMagic.substr(0, 3)) {
    return error(Code::kInvalidArgument, "id: these 128 bytes are no unique id");
  }
  if (magic != kMagic) {
    return error(Code::kInvalidArgument,
                 "id: made by a version of the library whose ids this one does not know");
  }
  ByteReader tail({id.bytes.data() + kCheckedBytes, 8});
  if (tail.get<uint64_t>() != checksum({id.bytes.data(), kCheckedBytes})) {
    return error(Code::kInvalidArgument, "id: damaged on its way (the checksum is wrong)");
  }
  const auto scope = reader.get<uint32_t>();
  IdFields fields;
  fields.job = reader.get<uint64_t>();
  const std::string_view secret = reader.get_bytes(fields.secret.size());
  std::copy(secret.begin(), secret.end(), fields.secret.begin());
  fields.unix_number = reader.get<uint64_t>();
  for (size_t i = 0; i < kMaxIdAddresses; ++i) {
    if (!get_address(reader, scope, fields.addresses)) {
      return error(Code::kInvalidArgument, "id: an address of an unknown family");
    }
  }
  return fields;
}

std::string unix_name(const IdFields& fields) {
  return fmt::format("unisono-{:016x}", fields.unix_number);
}

std::vector<net::Address> choose_addresses(const std::vector<net::Address>& usable) {
  std::vector<net::Address> chosen;
  for (const net::Address& address : usable) {
    const int family = address.storage.ss_family;
    if ((family == AF_INET || family == AF_INET6) && address_rank(address) < 6) {
      chosen.push_back(address);
    }
  }
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const auto& a, const auto& b) { return address_rank(a) < address_rank(b); });
  if (chosen.size() <= kMaxIdAddresses) return chosen;
  // The last place is for the other family: many bridges of containers must not keep it out.
  const auto other = std::find_if(chosen.begin(), chosen.end(), [&](const net::Address& address) {
    return address.storage.ss_family != chosen[0].storage.ss_family && address_rank(address) < 3;
  });
  if (other != chosen.end() && other - chosen.begin() >= ptrdiff_t{kMaxIdAddresses}) {
    chosen[kMaxIdAddresses - 1] = *other;
  }
  chosen.resize(kMaxIdAddresses);
  return chosen;
}

void fill_random(void* bytes, size_t count) {
  ensure_sodium();
  randombytes_buf(bytes, count);
}

net::Secret make_proof(const net::Secret& key, std::string_view label, std::string_view message) {
  ensure_sodium();
  static_assert(sizeof(net::Secret) == crypto_auth_hmacsha256_BYTES);
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, key.data(), key.size());
  const auto update = [&](std::string_view part) {
    crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(part.data()),
                                  part.size());
  };
  update(label);
  update({"\0", 1});
  update(message);
  net::Secret proof;
  crypto_auth_hmacsha256_final(&state, proof.data());
  return proof;
}

bool same_proof(const net::Secret& expected, std::string_view received) {
  return received.size() == expected.size() &&
         sodium_memcmp(expected.data(), received.data(), expected.size()) == 0;
}

std::string_view as_text(const net::Secret& secret) {
  return {reinterpret_cast<const char*>(secret.data()), secret.size()};
}

net::Secret key_from_text(std::string_view text) {
  ensure_sodium();
  net::Secret key;
  crypto_generichash(key.data(), key.size(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size(), nullptr, 0);
  return key;
}

}  // namespace unisono::bootstrap

namespace unisono {

Result<IdContents> read_unique_id(const UniqueId& id) {
  TRY_ASSIGN(const bootstrap::IdFields fields, bootstrap::decode_id(id));
  return IdContents{fields.secret, fields.job};
}

}  // namespace unisono
