// Which parameters of an iteration are ready, and in which order they became so.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ddp/reducer/parameter.h"
#include "ddp/status.h"

namespace unisono::ddp {

enum class Mark : uint8_t { kNone, kReady, kUnused, kStatic /* unused by the static graph */ };

// Threads: set() by many at once; the others while no set() is under way.
class Marks {
 public:
  explicit Marks(std::span<const Parameter> parameters);
  // A new iteration. Those of `never_used` are marked already; empty: none.
  void begin(std::span<const uint8_t> never_used);
  // uniInvalidUsage if it has a mark already; error() then says so too. *is_first false: there is
  // nothing to do, the static graph has said it before.
  Status set(int parameter, Mark mark, bool* is_first);
  // The first refusal of set() in this iteration.
  const Status& error() const { return error_; }
  std::vector<int> unmarked() const;
  // All parameters: as they were marked ready, then the others by index.
  std::vector<int> order() const;

 private:
  Status refuse(int parameter, Mark mark, Mark earlier);

  const std::span<const Parameter> parameters_;
  const std::unique_ptr<std::atomic<Mark>[]> marks_;
  std::vector<int> ready_;
  std::atomic<size_t> ready_count_{0};
  std::mutex mutex_;  // error_
  Status error_;
};

}  // namespace unisono::ddp
