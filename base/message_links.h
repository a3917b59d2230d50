// MessageLinks: small reliable in-order messages between ranks, for control. Over authenticated
// sockets (comm/control) or inside the simulator (transports/sim). Not for data.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"

namespace unisono {

inline constexpr size_t kMaxControlMessageBytes = 1u << 20;

class MessageLinks {
 public:
  // Handlers run one at a time on the links' own context (the event loop's thread; in sim, whoever
  // runs), and must not block.
  struct Handlers {
    std::function<void(int32_t from, std::string message)> message;
    // The link to a neighbour ended. orderly: the peer called close(). Called at most once a
    // neighbour.
    std::function<void(int32_t peer, bool orderly)> closed;
    // A link of connect(), here or at the peer, is up; or ours could not be made. May be null.
    std::function<void(int32_t peer, bool up)> linked;
  };
  virtual ~MessageLinks() = default;  // close() first
  // Establishes links to `neighbours` (symmetric: each names the other). Blocks until all are up or
  // the deadline; an error names the missing rank. Called once.
  virtual Status open(std::span<const int32_t> neighbours, Handlers handlers,
                      int64_t deadline_ns) = 0;
  // A further link, to a lower rank that open() did not name; the peer need not ask for it. Does
  // not block: linked() tells, at the deadline at the latest. Any thread.
  virtual void connect(int32_t peer, int64_t deadline_ns) = 0;
  // Queues; any thread. Lost if the link has ended (closed tells) or there is none.
  virtual void send(int32_t neighbour, std::string message) = 0;
  // Runs fn in the handlers' context, after `delay_ns`. Dropped at close.
  virtual void post(std::function<void()> fn, int64_t delay_ns) = 0;
  // Sends an orderly farewell after everything queued. After it returns no handler is running or
  // will run.
  virtual void close() = 0;
};

}  // namespace unisono
