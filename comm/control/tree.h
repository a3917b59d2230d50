// The tree of control: arity 8, rank 0 on top, the parent of r is (r - 1) / 8.
#pragma once

#include <cstdint>
#include <vector>

namespace unisono::control {

inline constexpr int32_t kArity = 8;

inline int32_t parent_of(int32_t rank) {
  return rank == 0 ? -1 : (rank - 1) / kArity;
}

inline std::vector<int32_t> children_of(int32_t rank, int32_t ranks) {
  std::vector<int32_t> children;
  const int64_t first = int64_t{rank} * kArity + 1;
  for (int64_t child = first; child < first + kArity && child < ranks; ++child) {
    children.push_back(static_cast<int32_t>(child));
  }
  return children;
}

// The neighbour of `rank` that is next on the way to `to` (another rank).
inline int32_t next_hop(int32_t rank, int32_t to) {
  int32_t below = to;
  for (int32_t up = to; up > rank;) {
    below = up;
    up = parent_of(up);
    if (up == rank) return below;
  }
  return parent_of(rank);
}

}  // namespace unisono::control
