// Env: the seam to the outside world. Clock, threads, waiting and randomness go through it, so that
// with transports=sim virtual ranks run one at a time in virtual time and a failing seed replays
// exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/status.h"

namespace unisono {

inline constexpr int64_t kNeverNs = INT64_MAX;  // a deadline that does not come

// Where one communicator (or stream worker) sleeps: one primitive for shared memory and sockets
// alike.
class Waiter {
 public:
  virtual ~Waiter() = default;
  // Wakes the present or the next wait. Any thread; async-signal-safe in the real environment.
  virtual void notify() = 0;
  // A descriptor whose readability must end a wait (sockets). Real environment only; the caller
  // keeps ownership and removes it before closing. Any thread.
  virtual Status add_fd(int fd, bool also_writable = false) = 0;
  virtual void modify_fd(int fd, bool also_writable) = 0;
  virtual void remove_fd(int fd) = 0;
  // Writing 8 bytes (uint64_t 1) here is notify() from another process; -1 in sim. Owned by the
  // waiter.
  virtual int event_fd() const = 0;
  // Readable while a wait would return at once; -1 in sim.
  virtual int poll_fd() const = 0;
};

class Thread {
 public:
  virtual ~Thread() = default;  // joins
};

class Env {
 public:
  virtual ~Env() = default;
  virtual int64_t now_ns() = 0;  // monotonic
  virtual std::unique_ptr<Waiter> make_waiter() = 0;
  // Sleeps until one of the waiters is notified or has a ready descriptor, or the deadline has
  // passed. Consumes the notifications of those waiters. Spurious returns are allowed.
  virtual void wait(std::span<Waiter* const> waiters, int64_t deadline_ns) = 0;
  // One turn of a polling loop that found nothing: pause or yield (real), or let another virtual
  // rank run (sim). `idle_turns` counts such turns since something last happened. False: the caller
  // should sleep in wait() now.
  virtual bool relax(int idle_turns) = 0;
  virtual std::unique_ptr<Thread> start_thread(const char* name, std::function<void()> body) = 0;
  virtual void random_bytes(void* bytes, size_t count) = 0;
  // A call of the API that may wait enters before and leaves after. No-ops but in sim, where `rank`
  // (-1: a helper thread) then holds the right to run.
  virtual void enter(int rank) = 0;
  virtual void leave(int rank) = 0;
};

// The machine itself. One for the process; lives for ever.
Env& real_env();

// Cores that this process may use: affinity and cgroup quota, at least 1.
int usable_cores();
// How many ranks of this library share those cores now, as told by communicators; relax() yields
// soon when they outnumber the cores. Any thread.
void set_local_ranks(int ranks);

}  // namespace unisono
