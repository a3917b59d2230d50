// Topology: the machines that a simulation runs on (docs/scale.md says what the figures mean).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace unisono::uni_plan {

struct Link {
  double gbit_per_s = 0;
  double latency_us = 0;
  double burst_bytes = 0;  // what a shaper's token bucket lets pass at once
};

struct Topology {
  int32_t hosts = 1;
  int32_t ranks_per_host = 1;
  std::vector<int32_t> ranks_on_host;  // instead of the two above
  Link nic{100, 5};                    // of each host, shared by its ranks; both directions at once
  Link memory{80, 0.5};                // of each rank, to ranks of its host
  // Hosts whose card differs: (host, gbit/s).
  std::vector<std::pair<int32_t, double>> slow_hosts;
  int32_t hosts_per_rack = 0;          // 0: all hosts are on one switch that never blocks
  Link uplink{100, 1};                 // of each rack, shared by its hosts
  double overhead_us = 0.5;            // of a core, for each message, at either end
  double message_gigabytes_per_s = 0;  // of a core, for a message's bytes, at either end; 0: free
  double reduce_gigabytes_per_s = 8;   // operand bytes that a rank reads; 0: free
  double copy_gigabytes_per_s = 8;     // 0: free
  // Of all ranks together, as where a cluster is played on one machine; 0: a core each.
  int32_t cores = 0;
  double switch_us = 0;  // from one rank to another on a shared core
  uint64_t slice_bytes = 256 << 10;
  int32_t slots = 4;  // K of every channel

  int32_t ranks() const;
  // By rank.
  std::vector<int32_t> host_of_ranks() const;
  // After how many ranks the machines repeat themselves; ranks() if they do not.
  int32_t period() const;
  // kInvalidArgument names the field.
  Status check() const;
};

// JSON with the names above; fields left out keep what *topology has. kInvalidArgument names the
// field. Blocks on the file.
Status read_topology(const std::string& path, Topology* topology);
std::string topology_json(const Topology& topology);  // one object

}  // namespace unisono::uni_plan
