#include "ddp/reducer/marks.h"

#include "ddp/reducer/messages.h"

namespace unisono::ddp {

Marks::Marks(std::span<const Parameter> parameters)
    : parameters_(parameters),
      marks_(std::make_unique<std::atomic<Mark>[]>(parameters.size())),
      ready_(parameters.size()) {}

void Marks::begin(std::span<const uint8_t> never_used) {
  for (size_t i = 0; i < parameters_.size(); i++) {
    const bool known = !never_used.empty() && never_used[i] != 0;
    marks_[i].store(known ? Mark::kStatic : Mark::kNone, std::memory_order_relaxed);
  }
  ready_count_.store(0, std::memory_order_relaxed);
  error_ = {};
}

Status Marks::set(int parameter, Mark mark, bool* is_first) {
  std::atomic<Mark>& place = marks_[static_cast<size_t>(parameter)];
  Mark earlier = Mark::kNone;
  *is_first = place.compare_exchange_strong(earlier, mark, std::memory_order_acq_rel);
  if (!*is_first) {
    if (earlier == Mark::kStatic && mark == Mark::kUnused) return {};
    return refuse(parameter, mark, earlier);
  }
  if (mark == Mark::kReady) {
    ready_[ready_count_.fetch_add(1, std::memory_order_relaxed)] = parameter;
  }
  return {};
}

Status Marks::refuse(int parameter, Mark mark, Mark earlier) {
  const auto word = [](Mark of) { return of == Mark::kReady ? "ready" : "unused"; };
  const std::string label = parameter_label(parameters_, parameter);
  Status status =
      earlier == Mark::kStatic
          ? ddp::error(uniInvalidUsage,
                       "{} was marked ready, but was unused in the first iteration, and the "
                       "graph is said to be static",
                       label)
      : earlier == mark
          ? ddp::error(uniInvalidUsage, "{} was marked {} twice in one iteration", label,
                       word(mark))
          : ddp::error(uniInvalidUsage, "{} was marked {} after it had been marked {}", label,
                       word(mark), word(earlier));
  const std::lock_guard lock(mutex_);
  if (error_.ok()) error_ = status;
  return status;
}

std::vector<int> Marks::unmarked() const {
  std::vector<int> indices;
  for (size_t i = 0; i < parameters_.size(); i++) {
    if (marks_[i].load(std::memory_order_acquire) == Mark::kNone) {
      indices.push_back(static_cast<int>(i));
    }
  }
  return indices;
}

std::vector<int> Marks::order() const {
  std::vector<int> order(ready_.begin(),
                         ready_.begin() + static_cast<ptrdiff_t>(ready_count_.load()));
  for (size_t i = 0; i < parameters_.size(); i++) {
    if (marks_[i].load(std::memory_order_relaxed) != Mark::kReady) {
      order.push_back(static_cast<int>(i));
    }
  }
  return order;
}

}  // namespace unisono::ddp
