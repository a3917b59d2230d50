// Planner: which algorithm a call uses. A pure function of what was agreed at init and of the
// call's own arguments, so that every rank chooses the same without a word.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/registry.h"
#include "base/status.h"
#include "comm/call.h"

namespace unisono {

// Agreed at init (rank 0's figures).
struct Agreement {
  int32_t ranks = 1;
  bool multicast = false;    // one transport with several-reader channels joins all ranks
  bool same_memory = false;  // all ranks read each other's memory
  bool cheap_poll = false;   // of this rank alone: lend() sees news, and asks no kernel
  bool reproducible = false;
  bool oversubscribed = false;  // more ranks than cores on some host
  std::string algorithm;        // forced; empty: free
  uint32_t slice_bytes = 256u << 10;
  uint32_t slots = 4;
  double latency_us = 1;        // of the slowest link in use
  double gigabytes_per_s = 10;  // of the slowest link in use
  std::vector<int32_t> hosts;   // of each rank, numbered by first appearance; empty: one host
};

// kInvalidUsage when a forced algorithm contradicts reproducible. The result lives for ever.
Result<const Algorithm*> choose_algorithm(const Agreement& agreement, const Call& call);

// Modelled time, microseconds: for choose_algorithm, comm-bench and uni-plan.
double modelled_us(const Agreement& agreement, const Algorithm& algorithm,
                   const PlanRequest& request, double bytes);

}  // namespace unisono
