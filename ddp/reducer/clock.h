// The one clock of the statistics.
#pragma once

#include <chrono>
#include <cstdint>

namespace unisono::ddp {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace unisono::ddp
