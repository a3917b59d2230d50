// The ranks by host, for algorithms with two levels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace unisono {

struct HostMap {
  // By host, hosts in the order of their lowest ranks; each one's ranks ascending.
  std::vector<std::vector<int32_t>> ranks;
  // Every host has at least so many ranks. The first `owners` ranks of a host each own a part of
  // the vector and talk to their like on the other hosts; further ranks reach the wire through
  // them.
  int32_t owners = 1;
  int32_t largest = 1;          // ranks of the fullest host
  int32_t host = 0, index = 0;  // where `me` is

  int32_t hosts() const { return static_cast<int32_t>(ranks.size()); }
  const std::vector<int32_t>& on(int32_t some_host) const {
    return ranks[static_cast<size_t>(some_host)];
  }
  // The rank that owns part `owner` on a host.
  int32_t owner_on(int32_t some_host, int32_t owner) const {
    return on(some_host)[static_cast<size_t>(owner)];
  }
};

// `host_of_rank`: as PlanRequest::hosts, not empty; `me` is one of its ranks.
HostMap host_map(std::span<const int32_t> host_of_rank, int32_t me);

}  // namespace unisono
