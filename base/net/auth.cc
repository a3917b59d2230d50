#include "base/net/auth.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace unisono::net {
namespace {

constexpr std::array<unsigned char, 8> kMagic = {'u', 'n', 'i', 's', 'o', 'n', 'o', 0};
constexpr uint64_t kVersion = 1;
constexpr unsigned char kOkByte = 1;
// Offsets in the hello; numbers are little-endian.
constexpr size_t kAtVersion = 8, kAtPurpose = 10, kAtZero = 11, kAtFrom = 12, kAtTo = 16,
                 kAtJob = 20, kAtNonce = 28;
static_assert(kAtNonce + sizeof(Handshake::Nonce) == Handshake::kHelloBytes);
static_assert(sizeof(Secret) == crypto_auth_hmacsha256_KEYBYTES);
static_assert(Handshake::kProofBytes == crypto_auth_hmacsha256_BYTES);

void put(unsigned char* at, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) at[i] = static_cast<unsigned char>(value >> (8 * i));
}
uint64_t get(const unsigned char* at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; i++) value |= uint64_t{at[i]} << (8 * i);
  return value;
}

}  // namespace

Handshake Handshake::dial(const Secret& secret, const HandshakeFields& fields, const Nonce& nonce) {
  Handshake it(secret, true);
  it.fields_ = fields;
  it.step_ = Step::kAcceptorProof;
  std::copy(kMagic.begin(), kMagic.end(), it.hello_.begin());
  put(&it.hello_[kAtVersion], kVersion, 2);
  put(&it.hello_[kAtPurpose], static_cast<uint64_t>(fields.purpose), 1);
  put(&it.hello_[kAtFrom], static_cast<uint32_t>(fields.from), 4);
  put(&it.hello_[kAtTo], static_cast<uint32_t>(fields.to), 4);
  put(&it.hello_[kAtJob], fields.job, 8);
  std::copy(nonce.begin(), nonce.end(), &it.hello_[kAtNonce]);
  it.queue(it.hello_);
  return it;
}

Handshake Handshake::accept(const Secret& secret, uint64_t job, int32_t rank, const Nonce& nonce) {
  Handshake it(secret, false);
  it.fields_.job = job;
  it.fields_.to = rank;
  it.nonce_a_ = nonce;
  return it;
}

Handshake::~Handshake() {
  sodium_memzero(secret_.data(), secret_.size());
}

size_t Handshake::wanted() const {
  if (state_ != State::kRunning) return 0;
  switch (step_) {
    case Step::kHello:
      return kHelloBytes - in_bytes_;
    case Step::kAcceptorProof:
      return kAcceptBytes - in_bytes_;
    case Step::kDiallerProof:
      return kProofBytes - in_bytes_;
    case Step::kOk:
      return 1 - in_bytes_;
    case Step::kNothing:
      return 0;
  }
  return 0;
}

size_t Handshake::feed(std::span<const unsigned char> bytes) {
  size_t taken = 0;
  while (taken < bytes.size() && wanted() > 0) {
    const size_t now = std::min(wanted(), bytes.size() - taken);
    std::memcpy(&in_[in_bytes_], bytes.data() + taken, now);
    in_bytes_ += now;
    taken += now;
    if (wanted() > 0) break;
    take_message();
    in_bytes_ = 0;
  }
  return taken;
}

void Handshake::take_message() {
  switch (step_) {
    case Step::kHello: {
      if (!read_hello()) return fail();
      const Proof mine = proof("acceptor");
      queue(nonce_a_);
      queue(mine);
      step_ = Step::kDiallerProof;
      return;
    }
    case Step::kAcceptorProof: {
      std::copy_n(in_.begin(), nonce_a_.size(), nonce_a_.begin());
      const Proof expected = proof("acceptor");
      if (sodium_memcmp(expected.data(), &in_[nonce_a_.size()], kProofBytes) != 0) return fail();
      state_ = State::kProved;
      return;
    }
    case Step::kDiallerProof: {
      const Proof expected = proof("dialler\0");
      if (sodium_memcmp(expected.data(), in_.data(), kProofBytes) != 0) return fail();
      state_ = State::kProved;
      return;
    }
    case Step::kOk:
      if (in_[0] != kOkByte) return fail();
      step_ = Step::kNothing;
      state_ = State::kDone;
      return;
    case Step::kNothing:
      return;
  }
}

// Only what this endpoint serves gets an answer at all.
bool Handshake::read_hello() {
  std::copy_n(in_.begin(), kHelloBytes, hello_.begin());
  const uint64_t purpose = hello_[kAtPurpose];
  const uint64_t from = get(&hello_[kAtFrom], 4);
  if (!std::equal(kMagic.begin(), kMagic.end(), hello_.begin())) return false;
  if (get(&hello_[kAtVersion], 2) != kVersion || hello_[kAtZero] != 0) return false;
  if (purpose < static_cast<uint64_t>(Purpose::kControl)) return false;
  if (purpose > static_cast<uint64_t>(Purpose::kRendezvous)) return false;
  if (from > INT32_MAX) return false;
  if (get(&hello_[kAtTo], 4) != static_cast<uint32_t>(fields_.to)) return false;
  if (get(&hello_[kAtJob], 8) != fields_.job) return false;
  fields_.from = static_cast<int32_t>(from);
  fields_.purpose = static_cast<Purpose>(purpose);
  return true;
}

// Bound to everything said so far; the role keeps one side's proof from being played back as the
// other's.
Handshake::Proof Handshake::proof(const char (&role)[9]) const {
  std::array<unsigned char, 8 + kHelloBytes + sizeof(Nonce)> text{};
  std::memcpy(text.data(), role, 8);
  std::memcpy(&text[8], hello_.data(), kHelloBytes);
  std::memcpy(&text[8 + kHelloBytes], nonce_a_.data(), nonce_a_.size());
  Proof result{};
  crypto_auth_hmacsha256(result.data(), text.data(), text.size(), secret_.data());
  return result;
}

void Handshake::confirm() {
  if (state_ != State::kProved) return;
  if (dialler_) {
    queue(proof("dialler\0"));
    step_ = Step::kOk;
    state_ = State::kRunning;
  } else {
    const std::array<unsigned char, 1> ok = {kOkByte};
    queue(ok);
    step_ = Step::kNothing;
    state_ = State::kDone;
  }
}

std::span<const unsigned char> Handshake::unsent() const {
  return std::span(out_).subspan(out_begin_, out_end_ - out_begin_);
}

void Handshake::sent(size_t bytes) {
  CHECK(bytes <= out_end_ - out_begin_);
  out_begin_ += bytes;
}

void Handshake::queue(std::span<const unsigned char> bytes) {
  // The peer answers only what it has got, so by now the last message is gone; a peer that speaks
  // before its turn has broken the protocol, which its proof will show.
  if (out_begin_ == out_end_) out_begin_ = out_end_ = 0;
  if (bytes.size() > out_.size() - out_end_) return fail();
  std::memcpy(&out_[out_end_], bytes.data(), bytes.size());
  out_end_ += bytes.size();
}

void Handshake::fail() {
  state_ = State::kFailed;
  out_begin_ = out_end_ = 0;
}

}  // namespace unisono::net
