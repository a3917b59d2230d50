// Endpoint: authenticated links between the ranks of one communicator.
//
// One listener per rank (TCP on every usable address, and an abstract unix socket), one handshake:
// mutual HMAC challenge over the job's secret, which binds communicator, both ranks, the purpose
// and both nonces. Before it succeeds no byte of the peer is believed and no memory is taken beyond
// one small fixed buffer. Dialling and accepting run on the event loop's thread; callbacks run
// there too and must not block.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/net/event_loop.h"
#include "base/net/socket.h"
#include "base/status.h"

namespace unisono::net {

using Secret = std::array<unsigned char, 32>;

enum class Purpose : uint8_t { kControl = 1, kShm = 2, kTcp = 3, kUcx = 4, kRendezvous = 5 };

enum class Via : uint8_t { kUnixOnly, kTcpOnly, kUnixThenTcp };

struct EndpointOptions {
  int32_t rank = 0;
  Secret secret{};
  std::string interfaces;  // filter, see Environment::interfaces
  bool tcp = true;         // false: unix only, no network needed
  uint64_t job = 0;        // distinguishes communicators that share a secret; part of the handshake
};

class Endpoint {
 public:
  // fd owns an established, authenticated, non-blocking stream to `peer`. `is_unix`: ancillary data
  // works.
  using Accepted = std::function<void(int32_t peer, Fd fd, bool is_unix)>;
  using Dialled = std::function<void(Result<Fd> fd, bool is_unix)>;

  // Binds and listens, ports by the kernel. kSystemError if neither kind of listener is possible.
  static Result<std::unique_ptr<Endpoint>> create(EventLoop& loop, const EndpointOptions& options);
  // Stops listening; pending dials complete with kAborted before it returns; then nothing of it
  // runs again. Any thread, callbacks included.
  virtual ~Endpoint() = default;

  // Opaque, at most 2048 bytes: every usable numeric address and port, unix name, host identity.
  // Give it to the peers.
  virtual std::string address() const = 0;
  // For each peer rank what its address() said; needed before dialling it or accepting from it on a
  // multi-host job.
  virtual Status set_peer(int32_t peer, std::string_view address) = 0;
  // Incoming links of one purpose. Links that arrive before their handler wait (bounded in number
  // and time) and are handed over, on the loop's thread, before on_accept() returns: hold no lock
  // that the handler takes.
  virtual void on_accept(Purpose purpose, Accepted handler) = 0;
  // After it returns the handler is not running and never runs again; later links are refused.
  virtual void stop_accept(Purpose purpose) = 0;
  // When links could not be made for a second and a half because this process can open no further
  // descriptor: at most once, on the loop's thread, with the reason; if that has happened before,
  // before on_shortage() returns. Replaces the handler before it, which then is not running and
  // never runs again; may be null. From then on only control links are dialled, by a descriptor
  // kept for them: the news has to get out.
  virtual void on_shortage(std::function<void(const Status&)> handler) = 0;
  // Probes all addresses of the peer in parallel and keeps the first that completes the handshake;
  // tries again until the deadline (then kTimeout, naming the rank and what was tried).
  // kSystemError at once if no address can reach the peer, kInvalidUsage if its address is unknown,
  // kRemoteError if the peer's unix socket has been gone for a second: it listened when it told us.
  // `done` runs exactly once, never before dial() has returned.
  virtual void dial(int32_t peer, Purpose purpose, Via via, int64_t deadline_ns, Dialled done) = 0;
  // Whether the peer's host identity equals ours (a hint: shm proves it by mapping).
  virtual bool same_host_hint(int32_t peer) const = 0;
  virtual EventLoop& loop() = 0;
};

// Wire limits, fuzzed by tests/fuzz: parse functions never trust a length.
inline constexpr size_t kMaxAddressBytes = 2048;

}  // namespace unisono::net
