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
#include "tools/uni_run/agent.h"
#include "tools/uni_run/crew.h"
#include "tools/uni_run/guard.h"
#include "tools/uni_run/options.h"
#include "tools/uni_run/output.h"
#include "tools/uni_run/process.h"
#include "tools/uni_run/signals.h"

namespace unisono::uni_run {

class Supervisor {
 public:
  // All outlive it. `signal_fd`: of take_signals(). `orders`: by which an agent is steered; null
  // where there are none.
  Supervisor(const Options& options, Crew& crew, Spawner& spawner, Guard& guard, int signal_fd,
             Orders* orders);

  // Runs the job to its end, of which nothing is left then. The exit status of uni-run.
  int run();

 private:
  struct Rank {      // a member of the crew
    int number = 0;  // its place in the crew
    Spawned process;
    bool running = false;
    int wait_status = 0;
    std::optional<LineStream> output, error;
  };
  // A descriptor of the loop and what to do when it is ready.
  struct Watch {
    enum Kind { kSignals, kSink, kStream, kTerminal, kInput, kOrders } kind;
    Sink* sink = nullptr;
    LineStream* stream = nullptr;
  };

  Status start_ranks();
  Status start_rank(int number);

  void turn();  // of the loop: waits, then does what is to be done
  int timeout_ms() const;
  int64_t kill_time() const;  // when ranks that are asked to end now are killed
  void collect_watches(std::vector<pollfd>* polls, std::vector<Watch>* watches);
  void check_deadlines();

  void take_signal(TakenSignal signal);
  void forward_signal(int number);
  void take_orders();
  void signal_all(int number);
  void reap(pid_t first);  // first: of those that have ended; -1 unknown
  void end_rank(Rank& rank, int wait_status);
  void suspect(const Rank& rank);
  void blame();  // the suspect for the job's end
  // The first call decides the exit status; the others do nothing. Without a reason nothing is
  // said: whoever asked for it knows.
  void end_job(int exit_status, const std::string& why);
  void kill_job(int exit_status, const std::string& why);
  bool begin_end(int exit_status, const std::string& why);  // false: it has begun before

  void read_terminal();
  void feed_input();

  void drain();
  void report();
  void flush();
  void say(const std::string& line);
  Sink& errors() { return one_sink_ ? output_ : errors_; }

  const Options& options_;
  Crew& crew_;
  Spawner& spawner_;
  Guard& guard_;
  const int signal_fd_;
  Orders* orders_;
  Sink output_, errors_;
  const bool one_sink_;  // both lead to one place: lines must not be mixed within
  bool terminal_open_ = false;
  std::string input_;  // read from the terminal, not yet taken by rank 0

  std::vector<std::unique_ptr<Rank>> ranks_;
  int running_ = 0;
  int interrupts_ = 0;
  bool ending_ = false, quiet_ = false;
  int exit_status_ = 0;
  const Rank* suspect_ = nullptr;  // the likeliest cause so far, until blame()
  const Rank* first_failed_ = nullptr;
  int asked_to_end_ = 0;  // the signal that was forwarded and ends programs
  int64_t timeout_at_ns_;
  int64_t settle_at_ns_;  // then blame()
  int64_t kill_at_ns_;    // then again and again
};

}  // namespace unisono::uni_run
