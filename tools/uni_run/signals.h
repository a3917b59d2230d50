// The signals that uni-run takes through a descriptor, and their names.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "base/net/socket.h"
#include "base/status.h"

namespace unisono::uni_run {

// What this process's signals were before take_signals(): a rank starts with the same.
struct SignalState {
  sigset_t mask;
  bool pipe_ignored = false;
};

struct TakenSignals {
  net::Fd fd;  // signalfd, non-blocking
  SignalState before;
};
// Blocks the signals that are forwarded to ranks, SIGCHLD, SIGTSTP and SIGCONT, and ignores
// SIGPIPE. Those that whoever started us ignores (nohup) stay ignored.
Result<TakenSignals> take_signals();
struct TakenSignal {
  int number = 0;  // 0: none has come
  // Of SIGCHLD: the child that ended first since the last one was taken. Those that ended later
  // meanwhile left no signal of their own.
  pid_t child = -1;
};
TakenSignal next_signal(int signal_fd);

std::string signal_name(int number);  // "SIGTERM"

}  // namespace unisono::uni_run
