// How processes end, in words and as exit statuses.
#pragma once

#include <deque>
#include <string>
#include <vector>

namespace unisono::uni_run {

// Of waitpid()'s status.
bool is_failure(int wait_status);
int exit_status_of(int wait_status);  // as a shell's: 128 + signal
// Ended by a signal that comes from outside or from a broken program (SIGKILL, SIGSEGV): nobody
// ends so because another rank has failed. Also as a shell's status.
bool is_violent(int wait_status);
std::string describe_status(int wait_status);  // "was killed by SIGKILL", "exited with status 3"

struct Ended {
  int rank = 0;
  int wait_status = 0;
};
// "ranks 0-2, 5 were killed by SIGTERM; rank 3 exited with status 0".
std::string summarize(const std::vector<Ended>& ended);
std::string list_numbers(const std::vector<int>& ascending);  // "0-2, 5"

}  // namespace unisono::uni_run
