#include "base/net/event_loop.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <ctime>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/net/socket.h"

namespace unisono::net {
namespace {

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::shared_ptr<EventLoop> loop_or_die() {
  auto loop = shared_event_loop();
  EXPECT_TRUE(loop.ok()) << loop.status().message();
  return *loop;
}

size_t entries(const char* directory) {
  DIR* opened = ::opendir(directory);
  size_t count = 0;
  while (opened != nullptr && ::readdir(opened) != nullptr) count++;
  if (opened != nullptr) ::closedir(opened);
  return count;
}

TEST(EventLoop, IsOneForAllHolders) {
  const auto first = loop_or_die();
  EXPECT_EQ(first, loop_or_die());
  EXPECT_FALSE(first->on_loop_thread());
  bool inside = false;
  first->run_sync([&] { inside = first->on_loop_thread(); });
  EXPECT_TRUE(inside);
}

TEST(EventLoop, PostsRunInOrderAndRunSyncInlineOnTheLoop) {
  const auto loop = loop_or_die();
  std::string order;
  loop->post([&] { order += "a"; });
  loop->post([&] {
    loop->run_sync([&] { order += "b"; });
    order += "c";
  });
  loop->run_sync([&] { order += "d"; });
  EXPECT_EQ(order, "abcd");
}

TEST(EventLoop, DescriptorsReportUntilRemoved) {
  const auto loop = loop_or_die();
  const Fd event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  std::promise<uint64_t> seen;
  const auto id = loop->add_fd(event.get(), EPOLLIN, [&](uint32_t events) {
    EXPECT_NE(events & EPOLLIN, 0U);
    uint64_t value = 0;
    if (::read(event.get(), &value, sizeof value) == 8) seen.set_value(value);
  });
  ASSERT_TRUE(id.ok());
  EXPECT_FALSE(loop->add_fd(event.get(), EPOLLIN, [](uint32_t) {}).ok());  // watched already
  const uint64_t five = 5;
  ASSERT_EQ(::write(event.get(), &five, sizeof five), 8);
  EXPECT_EQ(seen.get_future().get(), 5U);
  loop->remove(*id);
  loop->remove(*id);
  loop->remove(0);
  ASSERT_EQ(::write(event.get(), &five, sizeof five), 8);
  loop->run_sync([] {});  // had it still been watched, the second set_value would have thrown
}

TEST(EventLoop, ModifySilencesAndWakesADescriptor) {
  const auto loop = loop_or_die();
  const Fd event(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
  std::atomic<int> calls{0};
  std::promise<void> called;
  EventLoop::Id id = 0;
  const auto added = loop->add_fd(event.get(), 0, [&](uint32_t) {
    if (calls++ > 0) return;
    loop->modify_fd(id, 0);
    called.set_value();
  });
  ASSERT_TRUE(added.ok());
  loop->run_sync([&] { id = *added; });
  EXPECT_EQ(calls, 0);
  loop->modify_fd(id, EPOLLIN);
  called.get_future().get();
  for (int i = 0; i < 10; i++) loop->run_sync([] {});
  EXPECT_EQ(calls, 1);
  loop->remove(id);
}

TEST(EventLoop, TimersFireOnceInOrderOfTheirDeadlines) {
  const auto loop = loop_or_die();
  std::string order;
  std::promise<void> last;
  const int64_t now = now_ns();
  EventLoop::Id removed = 0;
  loop->run_sync([&] {
    loop->add_timer(now + 3'000'000, [&] {
      EXPECT_GE(now_ns(), now + 3'000'000);
      order += "c";
      last.set_value();
    });
    removed = loop->add_timer(now + 2'500'000, [&] { order += "x"; });
    loop->add_timer(now + 1'000'000, [&] { order += "b"; });
    loop->add_timer(now - 1'000'000, [&] { order += "a"; });
    loop->add_timer(INT64_MAX, [&] { order += "never"; });
    loop->remove(removed);
  });
  last.get_future().get();
  EXPECT_EQ(order, "abc");
}

TEST(EventLoop, ATimerThatAddsOverdueTimersStarvesNobody) {
  const auto loop = loop_or_die();
  std::atomic<bool> stop{false};
  std::function<void()> again = [&] {
    if (!stop) loop->add_timer(0, again);
  };
  loop->add_timer(0, again);
  loop->run_sync([] {});
  stop = true;
  loop->run_sync([] {});
  loop->run_sync([] {});
}

TEST(EventLoop, AfterRemoveTheCallbackIsNotRunningAndItsCapturesAreGone) {
  const auto loop = loop_or_die();
  for (int round = 0; round < 200; round++) {
    const Fd event(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));  // always readable
    auto captured = std::make_shared<std::atomic<bool>>(false);
    const std::weak_ptr<std::atomic<bool>> watch = captured;
    std::atomic<bool> running{false};
    const auto id = loop->add_fd(event.get(), EPOLLIN, [captured, &running](uint32_t) {
      running = true;
      captured->store(true);
      running = false;
    });
    ASSERT_TRUE(id.ok());
    captured.reset();
    if (round % 2 == 0) loop->run_sync([] {});
    loop->remove(*id);
    EXPECT_FALSE(running);
    EXPECT_TRUE(watch.expired());
  }
}

TEST(EventLoop, ACallbackMayRemoveItself) {
  const auto loop = loop_or_die();
  const Fd event(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
  std::promise<void> done;
  EventLoop::Id id = 0;
  int calls = 0;
  loop->run_sync([&] {
    const auto added = loop->add_fd(event.get(), EPOLLIN, [&](uint32_t) {
      calls++;
      loop->remove(id);
      done.set_value();
    });
    ASSERT_TRUE(added.ok());
    id = *added;
  });
  done.get_future().get();
  loop->run_sync([] {});
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, ManyThreadsMayUseItAtOnce) {
  const auto loop = loop_or_die();
  std::atomic<int> posted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; i++) {
        const auto timer = loop->add_timer(i % 2 == 0 ? 0 : INT64_MAX, [] {});
        loop->post([&] { posted++; });
        if (i % 10 == 0) loop->run_sync([] {});
        loop->remove(timer);
      }
    });
  }
  for (std::thread& one : threads) one.join();
  loop->run_sync([] {});
  EXPECT_EQ(posted, 800);
}

TEST(EventLoop, ItsThreadAndDescriptorsEndWithTheLastHolder) {
  loop_or_die();  // whatever is made once is there now
  const size_t threads = entries("/proc/self/task");
  const size_t descriptors = entries("/proc/self/fd");
  for (int i = 0; i < 300; i++) {
    bool ran = false;
    {
      const auto loop = loop_or_die();
      loop->post([&] { ran = true; });
    }
    EXPECT_TRUE(ran);  // what was posted before the end has run
  }
  EXPECT_LE(entries("/proc/self/task"), threads);
  EXPECT_LE(entries("/proc/self/fd"), descriptors);
}

TEST(EventLoop, TheLastHolderMayLetGoOnTheLoopsOwnThread) {
  const size_t descriptors = entries("/proc/self/fd");
  for (int i = 0; i < 50; i++) {
    auto loop = loop_or_die();
    EventLoop* raw = loop.get();
    std::promise<void> let_go;
    std::promise<void> posted_later;
    raw->post([&, held = std::move(loop)]() mutable {
      EventLoop* mine = held.get();
      held.reset();
      mine->post([&] { posted_later.set_value(); });  // it still stands until its posts have run
      let_go.set_value();
    });
    let_go.get_future().get();
    posted_later.get_future().get();
  }
  // The detached threads end on their own; a new loop can be had at any time.
  loop_or_die()->run_sync([] {});
  while (entries("/proc/self/fd") > descriptors) std::this_thread::yield();
}

// Runs body in a forked child; returns its exit status.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Fork, AChildOfAHolderCannotUseTheLoopAndTouchesNothing) {
  auto loop = loop_or_die();
  const int result = in_child([&] {
    if (!is_forked_child()) return 1;
    if (shared_event_loop().status().code() != Code::kInvalidUsage) return 2;
    loop->post([] {});
    loop->run_sync([] { ::_exit(3); });
    loop->remove(loop->add_timer(0, [] {}));
    if (loop->add_fd(0, EPOLLIN, [](uint32_t) {}).ok()) return 4;
    loop.reset();  // the last holder's end does not wait for a thread that is not there
    return 0;
  });
  EXPECT_EQ(result, 0);
  EXPECT_FALSE(is_forked_child());
  loop->run_sync([] {});  // the parent's works as before
}

TEST(Fork, AChildOfAProcessThatHoldsNothingStartsAfresh) {
  loop_or_die();  // and let go
  EXPECT_EQ(in_child([] {
#ifdef UNISONO_TSAN  // it refuses new threads in a child
              return is_forked_child() ? 1 : 0;
#else
              const auto loop = shared_event_loop();
              if (is_forked_child() || !loop.ok()) return 1;
              bool ran = false;
              (*loop)->run_sync([&] { ran = true; });
              return ran ? 0 : 2;
#endif
            }),
            0);
}

TEST(Fork, AChildHasClosedOurDescriptorsButNotOthersAndAnOldFdClosesNothing) {
  std::array<int, 2> ours{};
  std::array<int, 2> foreign{};
  ASSERT_EQ(::pipe(ours.data()), 0);
  ASSERT_EQ(::pipe(foreign.data()), 0);
  Fd reader(ours[0]);
  Fd writer(ours[1]);
  const int result = in_child([&] {
    if (::fcntl(reader.get(), F_GETFD) != -1 || ::fcntl(writer.get(), F_GETFD) != -1) return 1;
    if (::fcntl(foreign[0], F_GETFD) == -1) return 2;
    const int reused = ::dup(foreign[0]);  // the lowest free number: one of ours
    if (reused != reader.get() && reused != writer.get()) return 3;
    reader.reset();
    writer.reset();
    if (::fcntl(reused, F_GETFD) == -1) return 4;
    return 0;
  });
  EXPECT_EQ(result, 0);
  EXPECT_NE(::fcntl(reader.get(), F_GETFD), -1);
  ::close(foreign[0]);
  ::close(foreign[1]);
}

}  // namespace
}  // namespace unisono::net
