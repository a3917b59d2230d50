// How a rank waits: spins, yields, sleeps.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/env.h"

namespace unisono {
namespace {

// Turns until relax() says to sleep.
int turns_until_sleep() {
  int idle = 1;
  while (real_env().relax(idle)) ++idle;
  return idle;
}

// This thread, and those that it starts, on the core where it is, until the end of the scope.
class OnOneCore {
 public:
  OnOneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OnOneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OnOneCore(const OnOneCore&) = delete;

 private:
  cpu_set_t before_;
};

TEST(Waiting, GoesFromSpinningToYieldingToSleep) {
  const int turns = turns_until_sleep();
  EXPECT_GT(turns, 100);
  EXPECT_LT(turns, 100'000);
}

// A yield to somebody who computes costs a time slice. A wait that finds strangers yields no more
// for a while, twice as long each time that they are still there: so sooner or later the next wait
// begins within that time, however the scheduler deals its slices. What is counted are turns.
TEST(Waiting, YieldsNoMoreWhereStrangersKeepTheCore) {
  const OnOneCore pinned;
  std::atomic<bool> stop{false};
  std::vector<std::thread> strangers;
  for (int i = 0; i < 4; ++i) {
    strangers.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  int turns = turns_until_sleep();  // finds them out
  for (int wait = 0; wait < 20 && turns > 200; ++wait) turns = turns_until_sleep();
  stop = true;
  for (std::thread& thread : strangers) thread.join();
  EXPECT_LE(turns, 200);
}

}  // namespace
}  // namespace unisono
