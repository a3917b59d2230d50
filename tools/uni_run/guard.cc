#include "tools/uni_run/guard.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <set>

#include "tools/uni_run/descendants.h"

namespace unisono::uni_run {
namespace {

// Words over the pipe: a group, minus a group that is gone, or 0 for a good end. The end of the
// stream without a 0 means that uni-run was killed.
[[noreturn]] void run_guard(int pipe, const std::string& marker) {
  sigset_t all;
  sigfillset(&all);
  (void)sigprocmask(SIG_BLOCK, &all, nullptr);  // what ends uni-run must not end its guard
  (void)setpgid(0, 0);
  (void)prctl(PR_SET_NAME, "uni-run-guard");
  std::set<pid_t> groups;
  for (;;) {
    int32_t word = 0;
    const ssize_t got = read(pipe, &word, sizeof(word));
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof(word))) break;
    if (word == 0) _exit(0);
    if (word > 0) {
      groups.insert(word);
    } else {
      groups.erase(-word);
    }
  }
  for (const pid_t group : groups) (void)kill(-group, SIGKILL);
  kill_marked(marker);
  _exit(0);
}

}  // namespace

Result<Guard> Guard::start(const std::string& marker) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return system_error(errno, "pipe");
  net::Fd reader(fds[0]), writer(fds[1]);
  const pid_t pid = _Fork();
  if (pid < 0) return system_error(errno, "fork");
  if (pid == 0) {
    (void)close(fds[1]);
    run_guard(fds[0], marker);
  }
  // Here too, so that it has happened before any rank starts.
  (void)setpgid(pid, pid);
  return Guard(std::move(writer), pid);
}

Guard::~Guard() {
  if (!pipe_.valid()) return;
  tell(0);
  pipe_.reset();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// If the guard itself was killed the pipe is broken: the job goes on without it.
void Guard::tell(int32_t word) {
  (void)!write(pipe_.get(), &word, sizeof(word));
}

}  // namespace unisono::uni_run
