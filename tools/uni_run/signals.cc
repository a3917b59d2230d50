#include "tools/uni_run/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace unisono::uni_run {
namespace {

bool is_ignored(int number) {
  struct sigaction action {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Result<TakenSignals> take_signals() {
  TakenSignals taken;
  taken.before.pipe_ignored = is_ignored(SIGPIPE);
  sigset_t wanted;
  sigemptyset(&wanted);
  // A blocked signal reaches the descriptor even where it is ignored: those are left out.
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) {
    if (!is_ignored(number)) sigaddset(&wanted, number);
  }
  sigaddset(&wanted, SIGCHLD);
  // Children of a process that ignores SIGCHLD would vanish without a status.
  if (std::signal(SIGCHLD, SIG_DFL) == SIG_ERR || std::signal(SIGPIPE, SIG_IGN) == SIG_ERR ||
      sigprocmask(SIG_BLOCK, &wanted, &taken.before.mask) != 0) {
    return system_error(errno, "sigprocmask");
  }
  taken.fd = net::Fd(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!taken.fd.valid()) return system_error(errno, "signalfd");
  return taken;
}

TakenSignal next_signal(int signal_fd) {
  signalfd_siginfo info{};
  if (read(signal_fd, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) return {};
  return {static_cast<int>(info.ssi_signo), static_cast<pid_t>(info.ssi_pid)};
}

std::string signal_name(int number) {
  const char* const name = sigabbrev_np(number);
  if (name != nullptr) return std::string("SIG") + name;
  return "signal " + std::to_string(number);
}

}  // namespace unisono::uni_run
