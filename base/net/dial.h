// Dial: one attempt to reach one peer by all its addresses at once, until a deadline.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/net/auth.h"
#include "base/net/endpoint_address.h"
#include "base/net/handshake_link.h"

namespace unisono::net {

// Lives on the loop's thread, but for its making.
class Dial {
 public:
  struct Plan {
    Secret secret{};
    HandshakeFields fields;
    Via via = Via::kUnixThenTcp;
    int64_t deadline_ns = 0;
    Endpoint::Dialled done;
    std::function<void(const Status&)> short_of_descriptors;  // told at each try; does not wait
  };
  // `ended` runs after plan.done; it may destroy the dial.
  Dial(EventLoop& loop, Plan plan, std::function<void()> ended);
  ~Dial();

  // The first address whose peer proves itself wins; the others are closed. Each address is tried
  // again by itself, so one that swallows packets does not hold up the rest. An error at once when
  // there is nothing to try.
  void start(const HostIdentity& ours, const EndpointAddress& peer);
  // Tries again at once what waits to be tried again.
  void try_now();
  // Completes the dial; nothing of it runs afterwards. Once.
  void finish(Result<Fd> fd, bool is_unix);
  int32_t peer() const { return plan_.fields.to; }
  Purpose purpose() const { return plan_.fields.purpose; }

 private:
  struct Probe {
    Address address;
    bool is_unix = false;
    bool held = false;  // waits for the unix socket to fail first
    bool proved = false;
    int failures = 0;
    int64_t gone_since_ns = 0;  // a unix socket on which nobody listens
    std::unique_ptr<HandshakeLink> link;
    EventLoop::Id retry = 0;
    std::string last_error = "not tried";
  };

  void add_tcp_probes(const HostIdentity& ours, const EndpointAddress& peer, bool held);
  void try_probe(size_t index);
  void changed(size_t index);
  void failed(size_t index, const Status& status);
  bool is_gone(Probe& probe, const Status& status);
  void confirm_next();
  void timed_out();
  void say_how(const Probe& won, int fd) const;
  std::string peer_name() const;

  EventLoop& loop_;
  Plan plan_;
  std::function<void()> ended_;
  std::vector<Probe> probes_;
  int confirmed_ = -1;  // the probe that may win
  EventLoop::Id deadline_ = 0;
  bool finished_ = false;
};

}  // namespace unisono::net
