// How sockets come from the event loop's thread to the driving thread, and how they go back there
// at the end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/env.h"
#include "base/net/event_loop.h"
#include "base/net/socket.h"

namespace unisono::tcp {

struct Arrival {
  int32_t peer;
  Result<net::Fd> fd;  // or why it could not be reached
};

// Shared by a transport and its pending dials, which may outlive it: a dial ends when it wants to.
class Mailbox {
 public:
  Mailbox(net::EventLoop& loop, Waiter& waiter) : loop_(loop), waiter_(&waiter) {}

  void deliver(int32_t peer, Result<net::Fd> fd);  // the loop's thread
  bool waiting() const { return waiting_.load(std::memory_order_acquire); }
  std::vector<Arrival> take();
  // The waiter is not used afterwards. Sockets that come later are told farewell.
  void close();

 private:
  net::EventLoop& loop_;
  std::mutex mutex_;
  Waiter* waiter_;  // null: closed
  std::vector<Arrival> arrivals_;
  std::atomic<bool> waiting_{false};
};

// Ends a stream in order: shuts our direction down, then lets the loop read and discard until the
// peer has ended its own (at most kLingerNs). Closing with unread bytes would reset the connection
// and destroy what the peer has not read yet. `farewell`: nothing was ever sent on it; says goodbye
// first. Any thread, does not wait.
inline constexpr int64_t kLingerNs = 5'000'000'000;
void retire(net::EventLoop& loop, net::Fd fd, bool farewell);

}  // namespace unisono::tcp
