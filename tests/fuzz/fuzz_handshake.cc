// Any bytes against both sides of the handshake: no overrun, no proof without the secret, never
// more read than wanted.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/net/auth.h"

using unisono::net::Handshake;

namespace {

constexpr int32_t kRank = 5;
constexpr uint64_t kJob = 77;

void drive(Handshake handshake, std::span<const unsigned char> bytes, size_t piece) {
  while (!bytes.empty() && handshake.wanted() > 0) {
    const auto now = bytes.first(piece < bytes.size() ? piece : bytes.size());
    const size_t wanted = handshake.wanted();
    const size_t taken = handshake.feed(now);
    CHECK(taken <= now.size());
    CHECK(taken > 0 && wanted <= Handshake::kAcceptBytes);
    if (piece % 2 == 0) handshake.sent(handshake.unsent().size());
    bytes = bytes.subspan(taken);
  }
  // No input can hold a proof: that would be a forged HMAC over our fresh nonce.
  CHECK(handshake.state() != Handshake::State::kProved);
  CHECK(handshake.state() != Handshake::State::kDone);
  if (handshake.state() == Handshake::State::kFailed) CHECK(handshake.unsent().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t piece = size_t{data[0]} + 1;
  const bool honest_hello = (data[1] & 1) != 0;
  unisono::net::Secret secret{};
  secret.fill(3);
  Handshake::Nonce nonce{};
  nonce.fill(9);
  const unisono::net::HandshakeFields fields{kJob, 1, kRank, unisono::net::Purpose::kTcp};
  const std::span<const unsigned char> rest(data + 2, size - 2);
  Handshake acceptor = Handshake::accept(secret, kJob, kRank, nonce);
  if (honest_hello) {  // otherwise random bytes never get past the magic number
    const Handshake dialler = Handshake::dial(secret, fields, nonce);
    acceptor.feed(dialler.unsent());
  }
  drive(acceptor, rest, piece);
  drive(Handshake::dial(secret, fields, nonce), rest, piece);
  return 0;
}
