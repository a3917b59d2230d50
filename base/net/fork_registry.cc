// The registry of descriptors that a forked child closes before anything else runs in it.
//
// Why close, and at once: a child that keeps a copy of a socket keeps the connection alive, so that
// a killed parent looks alive to its peers. Why never shutdown: that would end the parent's
// connection.
#include "base/net/fork_registry.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/net/event_loop.h"

namespace unisono::net {
std::atomic<bool> forked_child{false};

namespace {

constexpr size_t kWordBits = 64;

struct Registry {
  std::mutex loop_mutex;  // taken before `mutex`
  std::mutex mutex;
  std::vector<uint64_t> words;  // one bit a descriptor
  size_t count = 0;

  void add(int fd) {
    const size_t word = static_cast<size_t>(fd) / kWordBits;
    if (word >= words.size()) words.resize(word + 1);
    const uint64_t bit = uint64_t{1} << (static_cast<size_t>(fd) % kWordBits);
    if ((words[word] & bit) == 0) count++;
    words[word] |= bit;
  }
  bool drop(int fd) {
    const size_t word = static_cast<size_t>(fd) / kWordBits;
    const uint64_t bit = uint64_t{1} << (static_cast<size_t>(fd) % kWordBits);
    if (word >= words.size() || (words[word] & bit) == 0) return false;
    words[word] &= ~bit;
    count--;
    return true;
  }
  // Only async-signal-safe calls: other threads of the parent may have held any lock but ours.
  void close_all() {
    for (size_t word = 0; word < words.size(); word++) {
      for (uint64_t bits = words[word]; bits != 0; bits &= bits - 1) {
        ::close(static_cast<int>(word * kWordBits) + __builtin_ctzll(bits));
      }
      words[word] = 0;
    }
    count = 0;
  }
};

std::atomic<int> live_loops{0};

Registry& registry();

void before_fork() {
  registry().loop_mutex.lock();
  registry().mutex.lock();
}
void after_fork_in_parent() {
  registry().mutex.unlock();
  registry().loop_mutex.unlock();
}
void after_fork_in_child() {
  Registry& it = registry();
  // A process that holds nothing of ours when it forks leaves nothing behind: its child starts
  // afresh.
  if (it.count > 0 || live_loops.load(std::memory_order_relaxed) > 0) forked_child = true;
  it.close_all();
  it.mutex.unlock();
  it.loop_mutex.unlock();
}

Registry& registry() {
  // Never destroyed: descriptors may be let go by destructors of statics.
  static Registry* const instance = [] {
    auto* made = new Registry;
    CHECK(pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0);
    return made;
  }();
  return *instance;
}

}  // namespace

ForkLock::ForkLock() {
  registry().mutex.lock();
}
ForkLock::~ForkLock() {
  registry().mutex.unlock();
}
void ForkLock::close_in_child(int fd) {
  if (fd >= 0) registry().add(fd);
}

void close_in_child(int fd) {
  ForkLock().close_in_child(fd);
}

bool unregister_descriptor(int fd) {
  if (fd < 0) return false;
  const ForkLock lock;
  return registry().drop(fd);
}

void forget_in_child(int fd) {
  unregister_descriptor(fd);
}

std::mutex& shared_loop_mutex() {
  return registry().loop_mutex;
}

void count_loop(int difference) {
  registry();  // from now on fork() is watched
  live_loops.fetch_add(difference, std::memory_order_relaxed);
}

}  // namespace unisono::net
