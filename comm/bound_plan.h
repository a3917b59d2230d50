// BoundPlan: a plan with its channels opened on the communicator's transports, and its small-path
// template. Cached whole for the communicator's life: the key holds no size and no pointer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/plan.h"
#include "transports/transport.h"

namespace unisono {

struct BoundChannel {
  ChannelId id;
  SendEnd* send = nullptr;  // exactly one of the two
  RecvEnd* recv = nullptr;
  Transport* transport = nullptr;
  bool prefers_reserve = false;
  bool by_reference = false;
  int32_t peer = -1;  // the other end; -1: everyone
};

// A step of the plan's emission order, resolved.
struct OrderedStep {
  const Step* step = nullptr;
  int8_t lane = 0;
  int32_t index = 0;
};

struct BoundPlan {
  Plan plan;
  uint64_t hash = 0;  // of algorithm, collective, ranks, root: part of the fingerprint
  const char* algorithm_name = "";     // lives for ever
  std::vector<BoundChannel> channels;  // as plan.channels
  std::vector<OrderedStep> order;      // plan.order, resolved
  bool reads_peers_input = false;
  uint32_t slice_bytes = 0;  // of its channels
  int32_t max_operands = 1;
};

}  // namespace unisono
