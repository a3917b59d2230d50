// Inside base/net: what fork() must not interrupt, and what a forked child must give up.
#pragma once

#include <mutex>

namespace unisono::net {

// Held while a descriptor is made and registered, so that no fork() falls between the two and
// leaves a child with a copy of it. Only for calls that do not block. Not recursive:
// close_in_child() must not be called under it.
class ForkLock {
 public:
  ForkLock();
  ~ForkLock();
  ForkLock(const ForkLock&) = delete;
  ForkLock& operator=(const ForkLock&) = delete;
  void close_in_child(int fd);
};

// Forgets the descriptor; false if it was not registered, that is: a forked child has closed it
// already.
bool unregister_descriptor(int fd);

// fork() waits for it, so that a child never finds it locked by a thread that it does not have.
std::mutex& shared_loop_mutex();

// Event loops with a thread: a process that has one while it forks makes the child a forked child.
void count_loop(int difference);

}  // namespace unisono::net
