// The handshake as a pure state machine over bytes: no descriptors, no clock, no randomness of its
// own, so it can be fuzzed.
//
//   dialler                                       acceptor
//   hello {magic, version, purpose, from, to, job, nonce_d}  ->
//                                  <-  {nonce_a, HMAC(secret, "acceptor" | hello | nonce_a)}
//   {HMAC(secret, "dialler" | hello | nonce_a)}   ->
//                                  <-  {1}
// Messages have fixed sizes, so nothing of a stranger decides how much is read or kept. Whatever is
// wrong ends in kFailed without an answer. Either side stops at kProved, when the other has proved
// that it knows the secret, until its owner says confirm(): the dialler confirms one of its probes,
// the acceptor only what it has room for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/net/endpoint.h"

namespace unisono::net {

struct HandshakeFields {
  uint64_t job = 0;
  int32_t from = 0;  // who dials
  int32_t to = 0;
  Purpose purpose = Purpose::kControl;
};

class Handshake {
 public:
  enum class State : uint8_t { kRunning, kProved, kDone, kFailed };
  using Nonce = std::array<unsigned char, 32>;  // fresh random bytes, never used twice
  static constexpr size_t kHelloBytes = 60;
  static constexpr size_t kProofBytes = 32;
  static constexpr size_t kAcceptBytes = 32 + kProofBytes;

  static Handshake dial(const Secret& secret, const HandshakeFields& fields, const Nonce& nonce);
  static Handshake accept(const Secret& secret, uint64_t job, int32_t rank, const Nonce& nonce);
  ~Handshake();  // wipes its copy of the secret
  Handshake(const Handshake&) = default;
  Handshake& operator=(const Handshake&) = default;

  State state() const { return state_; }
  // How many bytes of the peer may be read now. The link's later bytes are not ours to swallow.
  size_t wanted() const;
  // Takes up to wanted() of them, returns how many.
  size_t feed(std::span<const unsigned char> bytes);
  std::span<const unsigned char> unsent() const;
  void sent(size_t bytes);
  // At kProved: goes on. Without effect in other states.
  void confirm();
  // Of the acceptor: believed from kProved on.
  const HandshakeFields& fields() const { return fields_; }

 private:
  enum class Step : uint8_t {
    kHello,
    kAcceptorProof,
    kDiallerProof,
    kOk,
    kNothing
  };  // awaited next
  using Proof = std::array<unsigned char, kProofBytes>;

  Handshake(const Secret& secret, bool dialler) : secret_(secret), dialler_(dialler) {}
  void take_message();
  bool read_hello();
  Proof proof(const char (&role)[9]) const;
  void queue(std::span<const unsigned char> bytes);
  void fail();

  Secret secret_;
  bool dialler_;
  State state_ = State::kRunning;
  Step step_ = Step::kHello;
  HandshakeFields fields_;
  Nonce nonce_a_{};
  std::array<unsigned char, kHelloBytes> hello_{};
  std::array<unsigned char, kAcceptBytes> in_{};
  size_t in_bytes_ = 0;
  std::array<unsigned char, kAcceptBytes> out_{};
  size_t out_begin_ = 0, out_end_ = 0;
};

}  // namespace unisono::net
