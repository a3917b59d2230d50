#include "algorithms/hosts.h"

#include <algorithm>
#include <map>

namespace unisono {

HostMap host_map(std::span<const int32_t> host_of_rank, int32_t me) {
  HostMap map;
  std::map<int32_t, size_t> number;
  for (size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    const auto [found, is_new] = number.try_emplace(host_of_rank[rank], map.ranks.size());
    if (is_new) map.ranks.emplace_back();
    std::vector<int32_t>& ranks = map.ranks[found->second];
    if (static_cast<int32_t>(rank) == me) {
      map.host = static_cast<int32_t>(found->second);
      map.index = static_cast<int32_t>(ranks.size());
    }
    ranks.push_back(static_cast<int32_t>(rank));
  }
  map.owners = static_cast<int32_t>(host_of_rank.size());
  for (const std::vector<int32_t>& ranks : map.ranks) {
    const auto size = static_cast<int32_t>(ranks.size());
    map.owners = std::min(map.owners, size);
    map.largest = std::max(map.largest, size);
  }
  return map;
}

}  // namespace unisono
