// Guard: a small process that outlives uni-run only to clean up if uni-run is killed (SIGKILL).
//
// Ranks then die by themselves (PR_SET_PDEATHSIG), but what they started would be left to init.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/net/socket.h"
#include "base/status.h"

namespace unisono::uni_run {

class Guard {
 public:
  // `marker`: the variable that marks the job's processes. Call before any other thread or
  // descriptor is made.
  static Result<Guard> start(const std::string& marker);
  Guard(Guard&&) = default;
  ~Guard();  // ends it; nothing is killed then

  // Process groups that would be killed. Remove one before its leader is reaped: its number may
  // then be somebody else's.
  void add(pid_t group) { tell(group); }
  void remove(pid_t group) { tell(-group); }
  pid_t pid() const { return pid_; }

 private:
  Guard(net::Fd pipe, pid_t pid) : pipe_(std::move(pipe)), pid_(pid) {}
  void tell(int32_t word);

  net::Fd pipe_;
  pid_t pid_ = -1;
};

}  // namespace unisono::uni_run
