// The real environment: the machine's clock, threads, waiting and randomness.
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "base/net/socket.h"
#include "base/pause.h"

namespace unisono {
namespace {

// How long to poll before sleeping, in turns that found nothing (a turn is 10-50 ns of the caller's
// polling plus the pause). Spinning finds a peer that runs on another core; yielding hands the core
// to a peer that waits for this one.
struct Budget {
  int spin_turns;
  int yield_turns;
};
constexpr Budget kOwnCore{2000, 400};
constexpr Budget kSharedCore{4, 600};

std::atomic<bool> ranks_share_cores{false};

// A yield that took so long gave the core to a stranger, who kept it for a time slice. Whoever
// sleeps instead is put back at once when its peer wakes it: microseconds instead of milliseconds.
// So yields are left out for a while and then tried again, ever more seldom while strangers stay.
constexpr int64_t kStrangerNs = 1'500'000;
constexpr int64_t kLeastCrowdedNs = 500'000, kMostCrowdedNs = 3'200'000'000;
constexpr int kProofYields = 1024;      // short ones in a row after which strangers are gone
constexpr int kCrowdedSpinTurns = 200;  // less than kOwnCore's: the peer may not be running

// Threads that race here lose no more than a slice: each word is consistent by itself.
class Crowd {
 public:
  bool at(int64_t now_ns) const { return now_ns < until_ns_.load(std::memory_order_relaxed); }
  void note_yield(int64_t before_ns, int64_t after_ns) {
    const int left = proof_left_.load(std::memory_order_relaxed);
    if (after_ns - before_ns < kStrangerNs) {
      if (left != 0) proof_left_.store(left - 1, std::memory_order_relaxed);
      return;
    }
    int64_t span_ns = span_ns_.load(std::memory_order_relaxed);
    span_ns = left != 0 ? std::min(2 * span_ns, kMostCrowdedNs) : kLeastCrowdedNs;
    span_ns_.store(span_ns, std::memory_order_relaxed);
    until_ns_.store(after_ns + span_ns, std::memory_order_relaxed);
    proof_left_.store(kProofYields, std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> until_ns_{0}, span_ns_{kLeastCrowdedNs};
  std::atomic<int> proof_left_{0};
};
Crowd crowd;

constexpr int64_t kBlindNs = 1'000'000;

// An epoll set of the registered descriptors and one eventfd, which is the doorbell.
class RealWaiter : public Waiter {
 public:
  RealWaiter()
      : epoll_(::epoll_create1(EPOLL_CLOEXEC)), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    // Without descriptors left it is blind: it watches none, and wait() looks again every
    // millisecond instead of being woken.
    if (!bell_.valid() || !epoll_.valid() || !watch(bell_.get(), false).ok()) epoll_.reset();
  }
  void notify() override {
    const uint64_t one = 1;
    const int saved = errno;  // a signal handler may call this
    // EAGAIN: the counter is full, so a wake-up is pending anyway.
    [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
    errno = saved;
  }
  Status add_fd(int fd, bool also_writable) override {
    if (!epoll_.valid()) return system_error(EMFILE, "a waiter's epoll_create1");
    return watch(fd, also_writable);
  }
  void modify_fd(int fd, bool also_writable) override {
    epoll_event event = interest(fd, also_writable);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  }
  void remove_fd(int fd) override {
    epoll_event event{};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, &event);
  }
  int event_fd() const override { return bell_.get(); }
  int poll_fd() const override { return epoll_.get(); }  // -1: blind

 private:
  Status watch(int fd, bool also_writable) {
    epoll_event event = interest(fd, also_writable);
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return system_error(errno, "epoll_ctl(add)");
    }
    return ok_status();
  }
  static epoll_event interest(int fd, bool also_writable) {
    epoll_event event{};
    event.events = EPOLLIN | (also_writable ? EPOLLOUT : 0U);
    event.data.fd = fd;
    return event;
  }
  net::Fd epoll_;
  net::Fd bell_;
};

class RealThread : public Thread {
 public:
  explicit RealThread(std::function<void()> body) : body_(std::move(body)) {}
  ~RealThread() override {
    if (started_) ::pthread_join(thread_, nullptr);
  }
  bool start(const char* name) {
    name_ = std::string(name).substr(0, 15);  // the kernel's limit
    // Signals are the application's: none of them may run on a thread of ours.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    started_ = ::pthread_create(&thread_, nullptr, &RealThread::main, this) == 0;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started_;
  }

 private:
  static void* main(void* self) {
    auto* thread = static_cast<RealThread*>(self);
    ::pthread_setname_np(::pthread_self(), thread->name_.c_str());
    thread->body_();
    return nullptr;
  }
  std::function<void()> body_;
  std::string name_;
  pthread_t thread_{};
  bool started_ = false;
};

class RealEnv : public Env {
 public:
  int64_t now_ns() override {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }
  std::unique_ptr<Waiter> make_waiter() override { return std::make_unique<RealWaiter>(); }

  void wait(std::span<Waiter* const> waiters, int64_t deadline_ns) override {
    std::array<pollfd, 16> few{};
    std::vector<pollfd> many;
    pollfd* polled = few.data();
    if (waiters.size() > few.size()) {
      many.resize(waiters.size());
      polled = many.data();
    }
    for (size_t i = 0; i < waiters.size(); ++i) polled[i] = {waiters[i]->poll_fd(), POLLIN, 0};
    for (size_t i = 0; i < waiters.size(); ++i) {
      if (polled[i].fd < 0) deadline_ns = std::min(deadline_ns, now_ns() + kBlindNs);
    }
    timespec timeout{};
    timespec* limit = nullptr;
    if (deadline_ns != kNeverNs) {
      const int64_t left_ns = std::max<int64_t>(0, deadline_ns - now_ns());
      timeout.tv_sec = left_ns / 1'000'000'000;
      timeout.tv_nsec = left_ns % 1'000'000'000;
      limit = &timeout;
    }
    // An epoll set can itself be polled, so one call serves one waiter and many. A signal is a
    // spurious return.
    if (::ppoll(polled, waiters.size(), limit, nullptr) <= 0) return;
    for (size_t i = 0; i < waiters.size(); ++i) {
      uint64_t rings = 0;
      if (polled[i].revents == 0) continue;
      [[maybe_unused]] const ssize_t count = ::read(waiters[i]->event_fd(), &rings, sizeof rings);
    }
  }

  bool relax(int idle_turns) override {
    const Budget& budget =
        ranks_share_cores.load(std::memory_order_relaxed) ? kSharedCore : kOwnCore;
    if (idle_turns < budget.spin_turns) {
      // The clock is read seldom: most waits end before.
      if (idle_turns == kCrowdedSpinTurns && crowd.at(now_ns())) return false;
      pause_cpu();
      return true;
    }
    if (idle_turns >= budget.spin_turns + budget.yield_turns) return false;
    const int64_t before_ns = now_ns();
    if (crowd.at(before_ns)) return false;
    ::sched_yield();
    crowd.note_yield(before_ns, now_ns());
    return true;
  }

  std::unique_ptr<Thread> start_thread(const char* name, std::function<void()> body) override {
    auto thread = std::make_unique<RealThread>(std::move(body));
    if (!thread->start(name)) return nullptr;
    return thread;
  }

  void random_bytes(void* bytes, size_t count) override {
    auto* next = static_cast<unsigned char*>(bytes);
    while (count > 0) {
      const ssize_t got = ::getrandom(next, count, 0);
      if (got < 0) {
        CHECK(errno == EINTR);
        continue;
      }
      next += got;
      count -= static_cast<size_t>(got);
    }
  }
  void enter(int) override {}
  void leave(int) override {}
};

std::string first_line(const std::string& path) {
  char line[256] = "";
  if (FILE* file = std::fopen(path.c_str(), "re")) {
    if (std::fgets(line, sizeof line, file) == nullptr) line[0] = 0;
    std::fclose(file);
  }
  line[std::strcspn(line, "\n")] = 0;
  return line;
}

// Whole cores that `quota` of `period` (both microseconds) allows; 0: no limit.
int cores_of_quota(double quota, double period) {
  if (quota <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>(quota / period));
}

// The tightest limit of cgroup v2 from this process's group up to the root.
int cgroup_v2_cores(std::string group) {
  int cores = 0;
  while (true) {
    double quota = 0, period = 0;
    const std::string line =
        first_line("/sys/fs/cgroup" + (group == "/" ? "" : group) + "/cpu.max");
    if (std::sscanf(line.c_str(), "%lf %lf", &quota, &period) == 2) {
      const int here = cores_of_quota(quota, period);
      if (here > 0 && (cores == 0 || here < cores)) cores = here;
    }
    const size_t slash = group.rfind('/');
    if (group.size() <= 1 || slash == std::string::npos) return cores;
    group.resize(std::max<size_t>(slash, 1));
  }
}

int cgroup_v1_cores(const std::string& group) {
  // A container sees its own group as the root of the mount; the path of /proc/self/cgroup may be
  // the host's.
  for (const std::string& folder :
       {"/sys/fs/cgroup/cpu" + group, std::string("/sys/fs/cgroup/cpu")}) {
    const double quota = std::atof(first_line(folder + "/cpu.cfs_quota_us").c_str());
    const double period = std::atof(first_line(folder + "/cpu.cfs_period_us").c_str());
    if (const int cores = cores_of_quota(quota, period); cores > 0) return cores;
  }
  return 0;
}

int cgroup_cores() {
  std::string v1_group, v2_group;
  if (FILE* file = std::fopen("/proc/self/cgroup", "re")) {
    char line[4096];
    while (std::fgets(line, sizeof line, file) != nullptr) {
      line[std::strcspn(line, "\n")] = 0;
      char* controllers = std::strchr(line, ':');
      char* group = controllers == nullptr ? nullptr : std::strchr(controllers + 1, ':');
      if (group == nullptr || group[1] != '/') continue;
      const std::string_view names(controllers + 1, static_cast<size_t>(group - controllers - 1));
      if (names.empty()) v2_group = group + 1;
      if (names == "cpu" || names == "cpu,cpuacct" || names == "cpuacct,cpu") v1_group = group + 1;
    }
    std::fclose(file);
  }
  int cores = v2_group.empty() ? 0 : cgroup_v2_cores(v2_group);
  if (cores == 0) cores = cgroup_v1_cores(v1_group);
  return cores;
}

}  // namespace

Env& real_env() {
  static RealEnv* const env = new RealEnv;  // never destroyed: exit handlers may still wait
  return *env;
}

int usable_cores() {
  int cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  // The kernel refuses a set smaller than its own, so grow it.
  for (int size = 1024; size <= 1 << 20; size *= 4) {
    cpu_set_t* set = CPU_ALLOC(size);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(size);
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    if (known) cores = CPU_COUNT_S(bytes, set);
    CPU_FREE(set);
    if (known || errno != EINVAL) break;
  }
  if (const int quota = cgroup_cores(); quota > 0) cores = std::min(cores, quota);
  return std::max(1, cores);
}

void set_local_ranks(int ranks) {
  ranks_share_cores.store(ranks > usable_cores(), std::memory_order_relaxed);
}

}  // namespace unisono
