// What the ranks of a simulated world share beside the scheduler: the places that messages are
// delivered to. Everything is guarded by scheduler->mutex.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "transports/sim/sim_channel.h"
#include "transports/sim/sim_scheduler.h"

namespace unisono {

// One transport object: what deliveries to it need. Dies with the transport's close().
class SimPort {
 public:
  uint64_t id = 0;
  int32_t world_rank = 0;
  int32_t rank = 0;                                    // in its communicator
  std::vector<uint64_t> peers;                         // ports by rank in the communicator, 0: none
  std::vector<bool> left;                              // by rank
  SimSignal* signal = nullptr;                         // of the driver's waiter
  std::vector<int64_t> wire_free_ns, last_arrival_ns;  // of the link to each rank
  std::map<uint64_t, Region> regions;
  Status status;
  bool changed = false;  // since the last progress()

  // The first failure stays.
  void fail(SimScheduler& scheduler, const Status& failure) {
    if (status.ok()) status = failure;
    touch(scheduler);
  }
  void touch(SimScheduler& scheduler) {
    changed = true;
    scheduler.notify_locked(*signal);
  }
};

struct SimLinkPort;

// (members of the group, which of the group's sets of links, rank in the group).
using SimLinkKey = std::tuple<std::vector<int32_t>, uint64_t, int32_t>;

struct SimCore {
  std::shared_ptr<SimScheduler> scheduler;
  uint64_t nonce = 0;  // tells worlds of one process apart
  uint64_t last_port = 0;
  std::map<uint64_t, SimPort*> ports;
  std::map<SimChannelKey, std::shared_ptr<SimChannel>> channels;
  std::map<SimLinkKey, std::shared_ptr<SimLinkPort>> links;
  std::map<std::tuple<std::vector<int32_t>, int32_t>, uint64_t> link_sets;  // made so far
  std::vector<bool> killed;                                                 // by world rank
  std::vector<int> open_transports;                                         // by world rank

  SimPort* port(uint64_t id) const {
    auto found = ports.find(id);
    return found == ports.end() ? nullptr : found->second;
  }
  // When a message of `bytes` from `rank` arrives that may start on the wire at `*wire_free`, which
  // it moves on.
  int64_t arrival_ns(int32_t rank, size_t bytes, int64_t* wire_free) {
    const SimOptions& options = scheduler->options();
    const int64_t start = std::max(scheduler->now_ns() + options.overhead_ns, *wire_free);
    *wire_free = start + static_cast<int64_t>(static_cast<double>(bytes) / options.gigabytes_per_s);
    return *wire_free + latency_ns(rank);
  }
  int64_t latency_ns(int32_t rank) {
    const auto latency = static_cast<double>(scheduler->options().latency_ns);
    return static_cast<int64_t>(latency *
                                (1 + scheduler->options().jitter * scheduler->draw(rank)));
  }
};

}  // namespace unisono
