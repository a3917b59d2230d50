// What the 128 bytes of a UniqueId hold, and the two proofs that are made of its secret.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/net/endpoint.h"
#include "base/net/socket.h"
#include "base/status.h"
#include "comm/bootstrap/bootstrap.h"

namespace unisono::bootstrap {

inline constexpr size_t kMaxIdAddresses = 3;

struct IdFields {
  net::Secret secret{};
  uint64_t job = 0;
  uint64_t unix_number = 0;             // makes the abstract unix name
  std::vector<net::Address> addresses;  // at most kMaxIdAddresses, IPv4 or IPv6
};
UniqueId encode_id(const IdFields& fields);
Result<IdFields> decode_id(const UniqueId& id);  // kInvalidArgument naming `id`
std::string unix_name(const IdFields& fields);   // without the leading NUL

// At most kMaxIdAddresses of the usable ones: global IPv4, then global IPv6, then whatever else
// there is.
std::vector<net::Address> choose_addresses(const std::vector<net::Address>& usable);

void fill_random(void* bytes, size_t count);
// HMAC-SHA-256 of `label` and `message`: the label keeps proofs of one kind from serving as
// another.
net::Secret make_proof(const net::Secret& key, std::string_view label, std::string_view message);
bool same_proof(const net::Secret& expected, std::string_view received);  // constant time
std::string_view as_text(const net::Secret& secret);
// A key from a job secret of any length.
net::Secret key_from_text(std::string_view text);

}  // namespace unisono::bootstrap
