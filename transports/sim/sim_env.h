// The Env of a simulated world: its clock, waiters, threads and randomness. See base/env.h for the
// contract.
#pragma once

#include <memory>
#include <vector>

#include "base/env.h"
#include "transports/sim/sim_scheduler.h"

namespace unisono {

class SimWaiter final : public Waiter {
 public:
  explicit SimWaiter(std::shared_ptr<SimScheduler> scheduler) : scheduler_(std::move(scheduler)) {}
  void notify() override { scheduler_->notify(signal_); }
  // There are no descriptors in a simulated world.
  Status add_fd(int fd, bool also_writable) override;
  void modify_fd(int, bool) override {}
  void remove_fd(int) override {}
  int event_fd() const override { return -1; }
  int poll_fd() const override { return -1; }
  SimSignal& signal() { return signal_; }

 private:
  const std::shared_ptr<SimScheduler> scheduler_;
  SimSignal signal_;
};

class SimEnv final : public Env {
 public:
  // members[r]: the world's number of rank r.
  SimEnv(std::shared_ptr<SimScheduler> scheduler, std::vector<int32_t> members)
      : scheduler_(std::move(scheduler)), members_(std::move(members)) {}
  int64_t now_ns() override { return scheduler_->now_ns(); }
  std::unique_ptr<Waiter> make_waiter() override { return std::make_unique<SimWaiter>(scheduler_); }
  void wait(std::span<Waiter* const> waiters, int64_t deadline_ns) override;
  bool relax(int) override { return false; }  // polling is for machines: sleep, so that others run
  std::unique_ptr<Thread> start_thread(const char* name, std::function<void()> body) override;
  void random_bytes(void* bytes, size_t count) override { scheduler_->random_bytes(bytes, count); }
  void enter(int rank) override;
  void leave(int) override { scheduler_->leave(); }

 private:
  const std::shared_ptr<SimScheduler> scheduler_;
  const std::vector<int32_t> members_;
};

}  // namespace unisono
