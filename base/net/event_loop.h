// EventLoop: the process's one service thread. It accepts and authenticates links and carries
// control traffic, so that errors spread even through a rank that computes. It sleeps in epoll when
// there is nothing to do.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/status.h"

namespace unisono::net {

class EventLoop {
 public:
  using Id = uint64_t;  // never reused
  virtual ~EventLoop() = default;
  // Callbacks run on the loop's thread, one at a time. All functions may be called from any thread,
  // callbacks included. `events` are EPOLLIN/EPOLLOUT/...; level-triggered. The caller keeps the
  // descriptor and removes before closing it.
  virtual Result<Id> add_fd(int fd, uint32_t events,
                            std::function<void(uint32_t events)> callback) = 0;
  virtual void modify_fd(Id id, uint32_t events) = 0;
  // After it returns the callback is not running (unless called from within it) and never runs
  // again. No effect on id 0 and on what has been removed or has fired.
  virtual void remove(Id id) = 0;
  virtual Id add_timer(int64_t deadline_ns,
                       std::function<void()> callback) = 0;  // fires once; clock of real_env()
  virtual void post(std::function<void()> callback) = 0;
  // Runs `callback` on the loop and waits for it; runs it inline when called on the loop's thread.
  virtual void run_sync(std::function<void()> callback) = 0;
  virtual bool on_loop_thread() const = 0;
};

// The process's shared loop, started at the first call, stopped when the last holder lets go. Not
// usable in a forked child of a holder (returns kInvalidUsage there). Any thread.
Result<std::shared_ptr<EventLoop>> shared_event_loop();

// fork() support: descriptors registered here are closed (never shut down) in a forked child,
// before it runs anything else of this library. Any thread. Fd does this by itself.
void close_in_child(int fd);
void forget_in_child(int fd);
extern std::atomic<bool> forked_child;  // set by the fork handler alone
// Of a process that had used this library.
inline bool is_forked_child() {
  return forked_child.load(std::memory_order_acquire);
}

}  // namespace unisono::net
