// When things happened in an iteration, and what the caller is told of it.
#pragma once

#include <atomic>
#include <cstdint>

#include "ddp/reducer/clock.h"
#include "unisono/ddp.h"

namespace unisono::ddp {

// note_gradient(): any thread, at any time. The others: one thread.
class Statistics {
 public:
  void begin_forward() { forward_ns_ = now_ns(); }
  void begin_backward() {
    backward_ns_ = now_ns();
    last_gradient_ns_.store(backward_ns_, std::memory_order_relaxed);
  }
  void note_gradient() { last_gradient_ns_.store(now_ns(), std::memory_order_relaxed); }
  // The iteration without synchronisation is over: only its forward is not told again.
  void end_accumulation() { forward_ns_ = 0; }
  // A synchronised iteration is over, now. Zero launch: nothing was communicated.
  void end(int64_t first_launch_ns, int64_t last_completion_ns, size_t wire_bytes);
  // Fills in times, iterations and wire_bytes.
  void write(uniReducerStats_t* stats) const;
  uint64_t iterations() const { return last_.iterations; }

 private:
  int64_t forward_ns_ = 0, backward_ns_ = 0;
  std::atomic<int64_t> last_gradient_ns_{0};
  uniReducerStats_t last_{};
};

}  // namespace unisono::ddp
