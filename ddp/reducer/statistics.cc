#include "ddp/reducer/statistics.h"

#include <algorithm>

namespace unisono::ddp {
namespace {

double microseconds(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(std::max<int64_t>(to_ns - from_ns, 0)) / 1000;
}

}  // namespace

void Statistics::end(int64_t first_launch_ns, int64_t last_completion_ns, size_t wire_bytes) {
  const int64_t end_ns = now_ns();
  const int64_t last_gradient_ns = last_gradient_ns_.load(std::memory_order_relaxed);
  last_.iterations++;
  last_.forward_us = forward_ns_ == 0 ? 0 : microseconds(forward_ns_, backward_ns_);
  last_.backward_us = microseconds(backward_ns_, last_gradient_ns);
  last_.communication_us = microseconds(first_launch_ns, last_completion_ns);
  last_.exposed_us = microseconds(last_gradient_ns, end_ns);
  last_.overlap_us = microseconds(first_launch_ns, std::min(last_completion_ns, last_gradient_ns));
  last_.wire_bytes = wire_bytes;
  forward_ns_ = 0;
}

void Statistics::write(uniReducerStats_t* stats) const {
  stats->iterations = last_.iterations;
  stats->forward_us = last_.forward_us;
  stats->backward_us = last_.backward_us;
  stats->communication_us = last_.communication_us;
  stats->exposed_us = last_.exposed_us;
  stats->overlap_us = last_.overlap_us;
  stats->wire_bytes = last_.wire_bytes;
}

}  // namespace unisono::ddp
