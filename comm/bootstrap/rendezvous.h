// The rendezvous behind a UniqueId: its server's and its client's inner interface, and what goes
// over the wire.
//
// A connection opens with 16 bytes, {magic, u64}, that say what it is for:
//   rendezvous  {magic, job}, then the handshake of base/net/auth.h with the id's secret, then
//   frames both ways; hand-out    {magic, tag << 1 | whether the job's secret is known}, a nonce <-
//   {status, nonce, id, proof}, and the end. Another tag: the end at once.
// The proof of a hand-out is an HMAC over both nonces and the id by the job's secret.
// Frames are {u32 length, u8 type, body}.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/net/auth.h"
#include "base/net/socket.h"
#include "comm/bootstrap/unique_id.h"

namespace unisono::bootstrap {

inline constexpr size_t kMagicBytes = 8, kNonceBytes = 32, kProofBytes = 32;
inline constexpr std::string_view kRendezvousMagic{"UniRdv\0\1", kMagicBytes};
inline constexpr std::string_view kHandoutMagic{"UniHnd\0\1", kMagicBytes};
inline constexpr size_t kOpeningBytes = kMagicBytes + 8;
inline constexpr size_t kHandoutBytes = 1 + kNonceBytes + 128 + kProofBytes;
inline constexpr size_t kFrameHeaderBytes = 5;
// From the client: payload and a little; from the server: the table.
inline constexpr size_t kMaxClientFrame = kMaxPayloadBytes + 64;
inline constexpr size_t kMaxServerFrame = size_t{1} << 30;
inline constexpr size_t kMaxErrorText = 4096;

enum FrameType : uint8_t {
  kRegister = 1,  // i32 ranks, i32 rank, string payload
  kLeave = 2,     // string why
  kTable = 3,     // u32 ranks, then a string each
  kFailure = 4,   // i32 code, string text
  kMissing = 5,   // string: ranks not yet there, in words
};
std::string frame(FrameType type, std::string_view body);

enum HandoutStatus : uint8_t { kPlain = 0, kAuthenticated = 1, kRefused = 2 };

std::string opening_bytes(std::string_view magic, uint64_t number);
// What both sides put into the handshake: there is one server, and a client's rank is told later.
net::HandshakeFields handshake_fields(uint64_t job);
net::Handshake::Nonce fresh_nonce();
net::Secret handout_proof(const net::Secret& key, std::string_view client_nonce,
                          std::string_view server_nonce, std::string_view id);
// The secret of an id that is handed out under a job's secret: it never travels.
net::Secret derived_secret(const net::Secret& key, uint64_t job);

struct ServeOptions {
  // Further places to listen at, where whoever asks is handed the id out. One of them must be
  // possible.
  std::vector<net::Address> handout;
  std::optional<net::Secret> job_key;  // hand out only to, and derive the secret from, its holders
  // Hand out only to who asks for this one: where the place alone does not say which job is meant.
  // 63 bits; 0: none.
  uint64_t tag = 0;
  // Once, on the loop, when all have registered or the meeting has failed, before anybody hears of
  // it.
  std::function<void()> over;
};
// create_unique_id() with more to say.
Result<UniqueId> serve_meeting(ServeOptions options);
// Ends a meeting whose id will not be used. Its later clients are refused.
void withdraw_meeting(const UniqueId& id);

// Asks at `addresses` (in parallel, again and again) for the id that is handed out there.
// From a unix socket only if the server runs under our own uid. `tag`: as the server's. kTimeout:
// nobody there by the deadline.
Result<UniqueId> fetch_unique_id(const std::vector<net::Address>& addresses,
                                 const std::optional<net::Secret>& job_key, int64_t deadline_ns,
                                 uint64_t tag = 0);
// Whether the id's server is alive and proves itself. kRemoteError: nobody serves it (any more).
Status probe_unique_id(const UniqueId& id, int64_t deadline_ns);

// In the maker's process: waits until every client of this meeting has got its answer (no-op
// elsewhere), and puts away what no meeting needs any more.
void finish_locally(uint64_t job, int64_t deadline_ns);
// Meetings served by this process and not over; for tests of leaks.
size_t live_meetings();

}  // namespace unisono::bootstrap
