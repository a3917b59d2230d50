// Supervisor: starts the ranks, carries their output and our signals, and ends them together.
//
// One thread, one poll() loop. Owner: main(). All functions on that thread.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/uni_run/environment.h"
#include "tools/uni_run/guard.h"
#include "tools/uni_run/options.h"
#include "tools/uni_run/output.h"
#include "tools/uni_run/process.h"

namespace unisono::uni_run {

class Supervisor {
 public:
  // All outlive it. `signal_fd`: of take_signals().
  Supervisor(const Options& options, const Job& job, Spawner& spawner, Guard& guard, int signal_fd);

  // Runs the job to its end, of which nothing is left then. The exit status of uni-run.
  int run();

 private:
  struct Rank {
    int number = 0;
    Spawned process;
    bool running = false;
    bool by_us = false;  // was told to end before it did
    int wait_status = 0;
    std::optional<LineStream> output, error;
  };
  // A descriptor of the loop and what to do when it is ready.
  struct Watch {
    enum Kind { kSignals, kSink, kStream, kTerminal, kInput } kind;
    Sink* sink = nullptr;
    LineStream* stream = nullptr;
  };

  Status start_ranks();
  Status start_rank(int number, const std::vector<int>& allowed);

  void turn();  // of the loop: waits, then does what is to be done
  int timeout_ms() const;
  void collect_watches(std::vector<pollfd>* polls, std::vector<Watch>* watches);
  void check_deadlines();

  void take_signal(int number);
  void signal_all(int number);
  void reap();
  void end_rank(Rank& rank, int wait_status);
  // The first call decides the exit status; the others do nothing.
  void end_job(int exit_status, const std::string& why);

  void read_terminal();
  void feed_input();

  void drain();
  void report();
  void flush();
  void say(const std::string& line);
  Sink& errors() { return one_sink_ ? output_ : errors_; }

  const Options& options_;
  const Job& job_;
  Spawner& spawner_;
  Guard& guard_;
  const int signal_fd_;
  Sink output_, errors_;
  const bool one_sink_;  // both lead to one place: lines must not be mixed within
  const bool terminal_input_;
  bool terminal_open_ = false;
  std::string input_;  // read from the terminal, not yet taken by rank 0

  std::vector<std::unique_ptr<Rank>> ranks_;
  int running_ = 0;
  int interrupts_ = 0;
  bool ending_ = false;
  int exit_status_ = 0;
  const Rank* first_failed_ = nullptr;
  int64_t timeout_at_ns_;
  int64_t kill_at_ns_;
};

}  // namespace unisono::uni_run
