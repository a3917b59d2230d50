#include "base/net/event_loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <deque>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/net/fork_registry.h"
#include "base/net/socket.h"

namespace unisono::net {
namespace {

constexpr EventLoop::Id kWakeId = 0;  // the eventfd's; sources start at 1
constexpr int64_t kLongestSleepMs = 3'600'000;

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class Loop final : public EventLoop {
 public:
  static Result<std::shared_ptr<EventLoop>> start();
  ~Loop() override;

  Result<Id> add_fd(int fd, uint32_t events, std::function<void(uint32_t)> callback) override;
  void modify_fd(Id id, uint32_t events) override;
  void remove(Id id) override;
  Id add_timer(int64_t deadline_ns, std::function<void()> callback) override;
  void post(std::function<void()> callback) override;
  void run_sync(std::function<void()> callback) override;
  bool on_loop_thread() const override { return current_ == this; }

 private:
  struct Source {
    int fd = -1;  // -1: a timer
    int64_t deadline_ns = 0;
    std::function<void(uint32_t)> callback;
  };

  static void let_go(Loop* loop);
  void run();
  void run_posts();
  void run_due_timers();
  void dispatch(Id id, uint32_t events);
  void call(std::unique_lock<std::mutex>& lock, Id id, std::shared_ptr<Source> source,
            uint32_t events);
  int sleep_ms();  // until the next thing to do, -1 once the loop has ended
  void wake();

  static thread_local const Loop* current_;

  Fd epoll_;
  Fd event_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable callback_ended_;
  std::unordered_map<Id, std::shared_ptr<Source>> sources_;
  std::set<std::pair<int64_t, Id>>
      timers_;  // a set, not a heap: removed timers leave nothing behind
  std::deque<std::function<void()>> posts_;
  Id next_id_ = 1;
  Id running_ = 0;
  bool stopping_ = false;
};

thread_local const Loop* Loop::current_ = nullptr;

Result<std::shared_ptr<EventLoop>> Loop::start() {
  auto loop = std::make_unique<Loop>();
  loop->epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!loop->epoll_.valid()) return system_error(errno, "epoll_create1");
  loop->event_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!loop->event_.valid()) return system_error(errno, "eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  if (::epoll_ctl(loop->epoll_.get(), EPOLL_CTL_ADD, loop->event_.get(), &event) != 0) {
    return system_error(errno, "epoll_ctl");
  }
  Loop* raw = loop.get();
  // The application's signals are for the application's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {  // our own code throws nothing; std::thread does
    raw->thread_ = std::thread([raw] {
      ::pthread_setname_np(::pthread_self(), "unisono-loop");
      raw->run();
    });
  } catch (const std::system_error& failure) {
    status = system_error(failure.code().value(), "starting the event loop's thread");
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  TRY(status);
  count_loop(1);
  return std::shared_ptr<EventLoop>(loop.release(),
                                    [](EventLoop* one) { let_go(static_cast<Loop*>(one)); });
}

void Loop::let_go(Loop* loop) {
  // In a forked child the thread does not exist and the locks are as they happened to be: touch
  // nothing, leak it.
  if (is_forked_child()) return;
  if (loop->on_loop_thread()) {
    // The thread cannot join itself: it runs what is posted, then deletes the loop as its last act
    // (run()).
    loop->thread_.detach();
    const std::lock_guard lock(loop->mutex_);
    loop->stopping_ = true;
    return;
  }
  {
    const std::lock_guard lock(loop->mutex_);
    loop->stopping_ = true;
  }
  loop->wake();
  loop->thread_.join();
  delete loop;
}

Loop::~Loop() {
  // Destructors of captured objects may call remove(): let them find an intact, empty loop.
  const auto sources = std::exchange(sources_, {});
  timers_.clear();
}

void Loop::wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the loop is awake anyway.
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

Result<EventLoop::Id> Loop::add_fd(int fd, uint32_t events,
                                   std::function<void(uint32_t)> callback) {
  if (is_forked_child()) return Status(Code::kInvalidUsage, "the event loop is the parent's");
  auto source = std::make_shared<Source>();
  source->fd = fd;
  source->callback = std::move(callback);
  const std::lock_guard lock(mutex_);
  const Id id = next_id_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return system_error(errno, "epoll_ctl");
  }
  sources_.emplace(id, std::move(source));
  return id;
}

void Loop::modify_fd(Id id, uint32_t events) {
  if (is_forked_child()) return;
  const std::lock_guard lock(mutex_);
  const auto found = sources_.find(id);
  if (found == sources_.end() || found->second->fd < 0) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second->fd, &event);
}

void Loop::remove(Id id) {
  if (id == 0 || is_forked_child()) return;
  std::shared_ptr<Source> source;  // destroyed after the lock: captured objects may call us
  std::unique_lock lock(mutex_);
  if (const auto found = sources_.find(id); found != sources_.end()) {
    source = std::move(found->second);
    sources_.erase(found);
    if (source->fd >= 0) {
      (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, source->fd, nullptr);
    } else {
      timers_.erase({source->deadline_ns, id});
    }
  }
  if (!on_loop_thread()) callback_ended_.wait(lock, [&] { return running_ != id; });
  lock.unlock();
}

EventLoop::Id Loop::add_timer(int64_t deadline_ns, std::function<void()> callback) {
  if (is_forked_child()) return 0;
  auto source = std::make_shared<Source>();
  source->deadline_ns = deadline_ns;
  source->callback = [timer = std::move(callback)](uint32_t) { timer(); };
  const std::lock_guard lock(mutex_);
  const Id id = next_id_++;
  sources_.emplace(id, std::move(source));
  const auto place = timers_.emplace(deadline_ns, id).first;
  if (place == timers_.begin() && !on_loop_thread()) wake();
  return id;
}

void Loop::post(std::function<void()> callback) {
  if (is_forked_child()) return;
  const std::lock_guard lock(mutex_);
  posts_.push_back(std::move(callback));
  if (posts_.size() == 1 && !on_loop_thread()) wake();
}

void Loop::run_sync(std::function<void()> callback) {
  if (is_forked_child()) return;  // nobody would run it
  if (on_loop_thread()) return callback();
  struct Latch {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  } latch;
  post([&] {
    callback();
    // Notified under the lock: the waiter destroys the latch as soon as it can take it.
    const std::lock_guard lock(latch.mutex);
    latch.done = true;
    latch.changed.notify_one();
  });
  std::unique_lock lock(latch.mutex);
  latch.changed.wait(lock, [&] { return latch.done; });
}

void Loop::call(std::unique_lock<std::mutex>& lock, Id id, std::shared_ptr<Source> source,
                uint32_t events) {
  running_ = id;
  lock.unlock();
  source->callback(events);
  source.reset();  // before remove() in another thread may return: captured objects go with the
                   // last run
  lock.lock();
  running_ = 0;
  callback_ended_.notify_all();
}

void Loop::dispatch(Id id, uint32_t events) {
  std::unique_lock lock(mutex_);
  const auto found = sources_.find(id);
  if (found == sources_.end()) return;  // removed since epoll_wait returned
  call(lock, id, found->second, events);
}

void Loop::run_due_timers() {
  const int64_t now = now_ns();
  std::unique_lock lock(mutex_);
  const Id limit =
      next_id_;  // timers that these timers add wait for the next turn, or sockets might starve
  while (!timers_.empty() && timers_.begin()->first <= now && timers_.begin()->second < limit) {
    const Id id = timers_.begin()->second;
    timers_.erase(timers_.begin());
    const auto found = sources_.find(id);
    std::shared_ptr<Source> source = std::move(found->second);
    sources_.erase(found);
    call(lock, id, std::move(source), 0);
  }
}

void Loop::run_posts() {
  std::deque<std::function<void()>> batch;
  {
    const std::lock_guard lock(mutex_);
    batch.swap(posts_);
  }
  while (!batch.empty()) {
    batch.front()();
    batch.pop_front();
  }
}

int Loop::sleep_ms() {
  const std::lock_guard lock(mutex_);
  if (!posts_.empty()) return 0;
  if (stopping_) return -1;
  if (timers_.empty()) return static_cast<int>(kLongestSleepMs);
  const int64_t left_ns = std::max<int64_t>(timers_.begin()->first - now_ns(), 0);
  // Rounded up: waking before the deadline would only spin.
  return static_cast<int>(
      std::min(left_ns / 1'000'000 + (left_ns % 1'000'000 != 0), kLongestSleepMs));
}

void Loop::run() {
  current_ = this;
  std::array<epoll_event, 64> events;
  for (;;) {
    run_posts();
    run_due_timers();
    const int timeout_ms = sleep_ms();
    if (timeout_ms < 0) break;
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms);
    for (int i = 0; i < count; i++) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 != kWakeId) {
        dispatch(event.data.u64, event.events);
        continue;
      }
      uint64_t ignored = 0;
      [[maybe_unused]] const ssize_t bytes = ::read(event_.get(), &ignored, sizeof ignored);
    }
  }
  count_loop(-1);
  const bool ours_to_delete = !thread_.joinable();  // detached by let_go() on this thread
  if (ours_to_delete) delete this;
  current_ = nullptr;
}

}  // namespace

Result<std::shared_ptr<EventLoop>> shared_event_loop() {
  if (is_forked_child()) {
    return Status(
        Code::kInvalidUsage,
        "this process was forked from one that used the library: start a new process instead");
  }
  static auto* const current = new std::weak_ptr<EventLoop>;  // outlives statics
  const std::lock_guard lock(shared_loop_mutex());
  if (std::shared_ptr<EventLoop> loop = current->lock()) return loop;
  TRY_ASSIGN(std::shared_ptr<EventLoop> loop, Loop::start());
  *current = loop;
  return loop;
}

}  // namespace unisono::net
