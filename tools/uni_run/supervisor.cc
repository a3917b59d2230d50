#include "tools/uni_run/supervisor.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/env.h"
#include "tools/uni_run/descendants.h"
#include "tools/uni_run/ending.h"
#include "tools/uni_run/signals.h"

namespace unisono::uni_run {
namespace {

constexpr int kTimeoutStatus = 124;    // as timeout(1)
constexpr int kCannotRunStatus = 126;  // as shells
constexpr int kNotFoundStatus = 127;
constexpr int kLostStatus = 125;
// Who fails because another rank is gone may be seen first, where cores are few.
constexpr double kSettleS = 0.5;
constexpr double kKillAgainS = 2;  // one SIGKILL is enough for a process, not for an ssh
constexpr size_t kMaxInputBytes = 64u << 10;
constexpr double kNsPerSecond = 1e9;
constexpr int64_t kNsPerMs = 1'000'000;

int64_t after_seconds(double seconds) {
  return real_env().now_ns() + static_cast<int64_t>(seconds * kNsPerSecond);
}

// A background job that reads its terminal is stopped by it.
bool is_foreground() {
  return tcgetpgrp(STDIN_FILENO) == getpgrp();
}

}  // namespace

Supervisor::Supervisor(const Options& options, Crew& crew, Spawner& spawner, Guard& guard,
                       int signal_fd, Orders* orders)
    : options_(options),
      crew_(crew),
      spawner_(spawner),
      guard_(guard),
      signal_fd_(signal_fd),
      orders_(orders),
      output_(STDOUT_FILENO),
      errors_(STDERR_FILENO),
      one_sink_(output_.same_target(errors_)),
      timeout_at_ns_(options.timeout_s > 0 ? after_seconds(options.timeout_s) : kNeverNs),
      settle_at_ns_(kNeverNs),
      kill_at_ns_(kNeverNs) {}

int Supervisor::run() {
  if (const Status status = start_ranks(); !status.ok()) {
    end_job(status.code() == Code::kInvalidArgument ? kNotFoundStatus : kCannotRunStatus,
            status.message());
  }
  while (running_ > 0) turn();
  // Only now: a process that left its rank's group may have worked for the others until here.
  if (!kill_descendants(guard_.pid())) say("a process that a rank has started cannot be killed");
  drain();
  report();
  flush();
  return exit_status_;
}

Status Supervisor::start_ranks() {
  for (int number = 0; number < crew_.size(); ++number) TRY(start_rank(number));
  return ok_status();
}

Status Supervisor::start_rank(int number) {
  TRY_ASSIGN(const RankSpec spec, crew_.spec(number));
  TRY_ASSIGN(Spawned process, spawner_.spawn(spec));
  auto rank = std::make_unique<Rank>();
  rank->number = number;
  rank->running = true;
  const std::string prefix = crew_.prefix(number);
  if (process.output.valid()) {
    rank->output.emplace(std::move(process.output), prefix, &output_,
                         [this, number](auto line) { return crew_.heard(number, line); });
  }
  if (process.error.valid()) rank->error.emplace(std::move(process.error), prefix, &errors());
  if (crew_.takes_input() && process.input.valid()) terminal_open_ = true;
  rank->process = std::move(process);
  guard_.add(rank->process.pid);
  crew_.started(number, rank->process);
  ranks_.push_back(std::move(rank));
  ++running_;
  return ok_status();
}

void Supervisor::turn() {
  std::vector<pollfd> polls;
  std::vector<Watch> watches;
  collect_watches(&polls, &watches);
  const int ready = poll(polls.data(), polls.size(), timeout_ms());
  for (size_t i = 0; ready > 0 && i < polls.size(); ++i) {
    if (polls[i].revents == 0) continue;
    switch (watches[i].kind) {
      case Watch::kSignals:
        for (auto next = next_signal(signal_fd_); next.number != 0;) {
          take_signal(next);
          next = next_signal(signal_fd_);
        }
        break;
      case Watch::kSink:
        watches[i].sink->write_some();
        break;
      case Watch::kStream:
        (void)watches[i].stream->read_some();
        break;
      case Watch::kTerminal:
        read_terminal();
        break;
      case Watch::kInput:
        feed_input();
        break;
      case Watch::kOrders:
        take_orders();
        break;
    }
  }
  check_deadlines();
}

int Supervisor::timeout_ms() const {
  const int64_t next_ns = std::min({timeout_at_ns_, settle_at_ns_, kill_at_ns_});
  if (next_ns == kNeverNs) return -1;
  const int64_t left_ns = std::max<int64_t>(0, next_ns - real_env().now_ns());
  return static_cast<int>(std::min<int64_t>((left_ns + kNsPerMs - 1) / kNsPerMs, 1'000'000));
}

void Supervisor::collect_watches(std::vector<pollfd>* polls, std::vector<Watch>* watches) {
  const auto add = [&](int fd, short events, Watch watch) {
    polls->push_back({fd, events, 0});
    watches->push_back(watch);
  };
  // Output before signals: a dead rank's last words are then read before its death is seen.
  for (const auto& rank : ranks_) {
    for (auto* stream : {&rank->output, &rank->error}) {
      if (stream->has_value() && (*stream)->readable_now()) {
        add((*stream)->fd(), POLLIN, {Watch::kStream, nullptr, &**stream});
      }
    }
  }
  for (Sink* sink : {&output_, &errors_}) {
    if (sink->pending()) add(sink->fd(), POLLOUT, {Watch::kSink, sink, nullptr});
  }
  if (crew_.takes_input() && !ranks_.empty() && ranks_[0]->process.input.valid()) {
    if (!input_.empty()) {
      add(ranks_[0]->process.input.get(), POLLOUT, {Watch::kInput, nullptr, nullptr});
    }
    if (terminal_open_ && input_.size() < kMaxInputBytes && is_foreground()) {
      add(STDIN_FILENO, POLLIN, {Watch::kTerminal, nullptr, nullptr});
    }
  }
  if (orders_ != nullptr) add(Orders::fd(), POLLIN, {Watch::kOrders, nullptr, nullptr});
  add(signal_fd_, POLLIN, {Watch::kSignals, nullptr, nullptr});
}

void Supervisor::check_deadlines() {
  const int64_t now_ns = real_env().now_ns();
  if (now_ns >= timeout_at_ns_) {
    timeout_at_ns_ = kNeverNs;
    std::vector<int> late;
    for (const auto& rank : ranks_) {
      if (rank->running) late.push_back(rank->number);
    }
    if (!late.empty()) {
      end_job(kTimeoutStatus, fmt::format("the time of {} s is up, still running: {}",
                                          options_.timeout_s, crew_.names(late)));
    }
  }
  if (now_ns >= settle_at_ns_) blame();
  if (now_ns < kill_at_ns_) return;
  kill_at_ns_ = after_seconds(kKillAgainS);
  if (ending_) return signal_all(SIGKILL);
  std::vector<int> deaf;
  for (const auto& rank : ranks_) {
    if (rank->running) deaf.push_back(rank->number);
  }
  kill_job(128 + asked_to_end_, fmt::format("still running {} s after {}: {}", options_.grace_s,
                                            signal_name(asked_to_end_), crew_.names(deaf)));
}

void Supervisor::take_signal(TakenSignal signal) {
  if (signal.number == SIGCHLD) {
    reap(signal.child);
  } else {
    forward_signal(signal.number);
  }
}

void Supervisor::forward_signal(int number) {
  if (number == SIGINT && ++interrupts_ >= 2) {
    return kill_job(128 + SIGINT, "interrupted twice");
  }
  signal_all(number);
  if ((number == SIGINT || number == SIGTERM) && asked_to_end_ == 0) {
    asked_to_end_ = number;
    kill_at_ns_ = std::min(kill_at_ns_, kill_time());
  }
  if (number == SIGTSTP) (void)raise(SIGSTOP);
}

// Agents keep the same time themselves.
int64_t Supervisor::kill_time() const {
  return after_seconds(options_.grace_s + (crew_.reports_itself() ? kKillAgainS : 0));
}

void Supervisor::take_orders() {
  const bool open = orders_->read_some();
  while (const auto line = orders_->next_line()) {
    int number = 0;
    if (std::sscanf(line->c_str(), "signal %d", &number) == 1 && number > 0) {
      if (number == SIGKILL) {
        kill_job(128 + SIGKILL, "");
      } else if (number == SIGTSTP) {
        signal_all(number);  // stopped ourselves, we could not read the order to go on
      } else {
        forward_signal(number);
      }
    } else if (*line == "end") {
      end_job(128 + SIGTERM, "");
    }
  }
  if (open) return;
  orders_ = nullptr;
  end_job(kLostStatus, "the uni-run that started this one is gone");
}

void Supervisor::signal_all(int number) {
  for (const auto& rank : ranks_) {
    if (rank->running) spawner_.send_signal(rank->process, number);
  }
}

void Supervisor::reap(pid_t first) {
  std::vector<const Rank*> ended;
  for (;;) {
    // Looks first and reaps later: until then its number is nobody else's, and its group can be
    // killed.
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
    const pid_t pid = info.si_pid;
    const auto at = std::find_if(ranks_.begin(), ranks_.end(), [&](const auto& rank) {
      return rank->running && rank->process.pid == pid;
    });
    if (at != ranks_.end()) {
      spawner_.send_signal((*at)->process, SIGKILL);  // what it has started and left behind
      guard_.remove(pid);
    }
    int wait_status = 0;
    (void)waitpid(pid, &wait_status, 0);
    if (at != ranks_.end()) {
      end_rank(**at, wait_status);
      ended.insert(pid == first ? ended.begin() : ended.end(), at->get());
    }
  }
  for (const Rank* rank : ended) {
    if (is_failure(rank->wait_status) && !ending_) suspect(*rank);
  }
  if (suspect_ != nullptr && (running_ == 0 || is_violent(suspect_->wait_status))) blame();
}

// The first to fail is the cause, unless one that failed at about the same time was killed.
void Supervisor::suspect(const Rank& rank) {
  if (suspect_ == nullptr) {
    settle_at_ns_ = after_seconds(kSettleS);
  } else if (is_violent(suspect_->wait_status) || !is_violent(rank.wait_status)) {
    return;
  }
  suspect_ = &rank;
}

void Supervisor::blame() {
  settle_at_ns_ = kNeverNs;
  if (ending_) return;
  first_failed_ = suspect_;
  end_job(exit_status_of(suspect_->wait_status),
          fmt::format("{} (pid {}) {}", crew_.name(suspect_->number), suspect_->process.pid,
                      describe_status(suspect_->wait_status)));
}

void Supervisor::end_rank(Rank& rank, int wait_status) {
  rank.running = false;
  rank.wait_status = wait_status;
  crew_.finished(rank.number);
  rank.process.input.reset();
  --running_;
}

void Supervisor::end_job(int exit_status, const std::string& why) {
  if (!begin_end(exit_status, why)) return;
  for (const auto& rank : ranks_) {
    if (rank->running) spawner_.end(rank->process);
  }
}

// Without a word before: a rank that still handled it would say that it has ended by itself.
void Supervisor::kill_job(int exit_status, const std::string& why) {
  (void)begin_end(exit_status, why);
  signal_all(SIGKILL);
}

bool Supervisor::begin_end(int exit_status, const std::string& why) {
  if (ending_) return false;
  ending_ = true;
  quiet_ = why.empty();
  exit_status_ = exit_status;
  kill_at_ns_ = std::min(kill_at_ns_, kill_time());
  const bool others = running_ > 0;
  if (!quiet_) say(others ? fmt::format("{}: ending the other {}", why, crew_.plural()) : why);
  return true;
}

void Supervisor::read_terminal() {
  char bytes[4096];
  const ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));
  if (got > 0) {
    input_.append(bytes, static_cast<size_t>(got));
  } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
    terminal_open_ = false;
    if (input_.empty()) ranks_[0]->process.input.reset();
  }
}

void Supervisor::feed_input() {
  const ssize_t put = write(ranks_[0]->process.input.get(), input_.data(), input_.size());
  if (put >= 0) {
    input_.erase(0, static_cast<size_t>(put));
    if (input_.empty() && !terminal_open_) ranks_[0]->process.input.reset();
  } else if (errno != EINTR && errno != EAGAIN) {
    ranks_[0]->process.input.reset();
  }
}

void Supervisor::drain() {
  for (const auto& rank : ranks_) {
    for (auto* stream : {&rank->output, &rank->error}) {
      if (!stream->has_value()) continue;
      while ((*stream)->read_some()) {
        if (!(*stream)->readable_now()) flush();
      }
      (*stream)->finish();
    }
  }
}

void Supervisor::report() {
  if (!ending_ || quiet_ || crew_.reports_itself()) return;
  if (first_failed_ != nullptr && first_failed_->error.has_value()) {
    const auto& lines = first_failed_->error->tail().lines();
    if (!lines.empty()) {
      say(fmt::format("last lines of {} on standard error:", crew_.name(first_failed_->number)));
    }
    for (const std::string& line : lines) say("  " + line);
  }
  std::vector<Ended> others;
  for (const auto& rank : ranks_) {
    if (rank.get() != first_failed_)
      others.push_back({options_.part.first_rank + rank->number, rank->wait_status});
  }
  if (!others.empty()) say(summarize(others));
}

// Waits for the readers of our output; a signal ends that.
void Supervisor::flush() {
  while (output_.pending() || errors_.pending()) {
    std::vector<pollfd> polls{{signal_fd_, POLLIN, 0}};
    std::vector<Sink*> sinks;
    for (Sink* sink : {&output_, &errors_}) {
      if (!sink->pending()) continue;
      polls.push_back({sink->fd(), POLLOUT, 0});
      sinks.push_back(sink);
    }
    if (poll(polls.data(), polls.size(), -1) < 0 && errno != EINTR) return;
    for (size_t i = 0; i < sinks.size(); ++i) {
      if (polls[i + 1].revents != 0) sinks[i]->write_some();
    }
    for (int number; (number = next_signal(signal_fd_).number) != 0;) {
      if (number == SIGINT || number == SIGTERM || number == SIGHUP) return;
    }
  }
}

void Supervisor::say(const std::string& line) {
  errors().append("uni-run: " + line + "\n");
}

}  // namespace unisono::uni_run
