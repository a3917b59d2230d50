// Ranks as processes: they meet, build a control tree, and one is killed. Children are this
// program, run again, since a forked child of a user of the library may not use it.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/env.h"
#include "comm/bootstrap/bootstrap.h"
#include "comm/control/control.h"

extern char** environ;

namespace unisono {
namespace {

constexpr int kReadyFd = 99;  // a child's; standard output is gtest's
constexpr int kPassed = 40;   // no exit status that comes by accident
constexpr int32_t kRanks = 11;
constexpr int32_t kVictim = 1;  // an inner node: parent of 9 and 10

int64_t in_seconds(int64_t seconds) {
  return real_env().now_ns() + seconds * 1'000'000'000;
}

// What a rank does: meet, exchange addresses, say "r", wait for the failure, check its words.
int run_child(const std::string& url) {
  auto place = meet_by_url(url, -1, -1, in_seconds(60));
  if (!place.ok() && url != "env://") {
    place = meet_by_url(url, environment().world_size, environment().rank, in_seconds(60));
  }
  if (!place.ok()) return fprintf(stderr, "%s\n", place.status().message().c_str()), 1;
  auto contents = read_unique_id(place->id);
  auto loop = net::shared_event_loop();
  if (!contents.ok() || !loop.ok()) return 2;
  net::EndpointOptions options;
  options.rank = place->rank;
  options.secret = contents->secret;
  options.job = contents->job;
  auto endpoint = net::Endpoint::create(**loop, options);
  if (!endpoint.ok()) return 3;
  auto table =
      exchange(place->id, place->ranks, place->rank, (*endpoint)->address(), in_seconds(60));
  if (!table.ok()) return fprintf(stderr, "%s\n", table.status().message().c_str()), 4;
  for (int32_t peer = 0; peer < place->ranks; ++peer) {
    if (!(*endpoint)->set_peer(peer, (*table)[static_cast<size_t>(peer)]).ok()) return 5;
  }
  auto waiter = real_env().make_waiter();
  ControlOptions control_options;
  control_options.rank = place->rank;
  control_options.ranks = place->ranks;
  control_options.env = &real_env();
  control_options.failed = [&] { waiter->notify(); };
  auto control =
      Control::create(make_socket_links(**endpoint, place->rank), control_options, in_seconds(60));
  if (!control.ok()) return fprintf(stderr, "%s\n", control.status().message().c_str()), 6;
  if (write(kReadyFd, "r", 1) != 1) return 7;
  const int64_t give_up_ns = in_seconds(60);
  while (!(*control)->failed() && real_env().now_ns() < give_up_ns) {
    Waiter* const mine = waiter.get();
    real_env().wait(std::span<Waiter* const>(&mine, 1), give_up_ns);
  }
  const Status status = (*control)->error();
  const bool right = status.code() == Code::kRemoteError &&
                     status.message().find("rank 1 died") != std::string::npos;
  if (!right) fprintf(stderr, "rank %d: %s\n", place->rank, status.message().c_str());
  (*control)->close();
  return right ? kPassed : 8;
}

TEST(Child, DISABLED_Run) {
  _exit(run_child(getenv("UNISONO_TEST_URL")));
}

class Job {
 public:
  explicit Job(std::map<std::string, std::string> variables) {
    EXPECT_EQ(pipe(pipe_), 0);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      variables["RANK"] = std::to_string(rank);
      variables["WORLD_SIZE"] = std::to_string(kRanks);
      start(variables);
    }
    close(pipe_[1]);
  }
  ~Job() {
    for (const pid_t pid : pids_) {
      if (pid <= 0) continue;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    close(pipe_[0]);
  }
  // All ranks have built the tree. False: some ended or a minute passed.
  bool all_ready() {
    for (int32_t ready = 0; ready < kRanks; ++ready) {
      pollfd one{pipe_[0], POLLIN, 0};
      char byte = 0;
      if (poll(&one, 1, 60'000) != 1 || read(pipe_[0], &byte, 1) != 1) return false;
    }
    return true;
  }
  void kill_rank(int32_t rank) { kill(pids_[static_cast<size_t>(rank)], SIGKILL); }
  int wait_for(int32_t rank) {
    int status = 0;
    waitpid(pids_[static_cast<size_t>(rank)], &status, 0);
    pids_[static_cast<size_t>(rank)] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  void start(const std::map<std::string, std::string>& variables) {
    std::vector<std::string> texts;
    for (char** one = environ; *one != nullptr; ++one) {
      const std::string text = *one;
      // Tests may run under a launcher themselves.
      if (variables.count(text.substr(0, text.find('='))) == 0) texts.push_back(text);
    }
    for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
    std::vector<char*> environment_pointers;
    for (std::string& text : texts) environment_pointers.push_back(text.data());
    environment_pointers.push_back(nullptr);
    std::string program = "/proc/self/exe", filter = "--gtest_filter=Child.DISABLED_Run",
                disabled = "--gtest_also_run_disabled_tests", brief = "--gtest_brief=1";
    char* arguments[] = {program.data(), filter.data(), disabled.data(), brief.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_[1], kReadyFd);
    posix_spawn_file_actions_addclose(&actions, pipe_[0]);
    posix_spawn_file_actions_addclose(&actions, pipe_[1]);
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments,
                          environment_pointers.data()),
              0);
    posix_spawn_file_actions_destroy(&actions);
    pids_.push_back(pid);
  }

  int pipe_[2] = {-1, -1};
  std::vector<pid_t> pids_;
};

void expect_death_told_to_all(const std::map<std::string, std::string>& variables) {
  Job job(variables);
  ASSERT_TRUE(job.all_ready());
  job.kill_rank(kVictim);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(job.wait_for(rank), rank == kVictim ? -SIGKILL : kPassed) << "rank " << rank;
  }
}

TEST(ProcessesTest, ADeadInnerNodeIsNamedOnEveryRankMeetingByFile) {
  std::string directory = testing::TempDir() + "/unisono_processes_XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  expect_death_told_to_all({{"UNISONO_TEST_URL", "file://" + directory + "/id"}});
  EXPECT_EQ(rmdir(directory.c_str()), 0) << "the id's file was left";
}

TEST(ProcessesTest, ADeadInnerNodeIsNamedOnEveryRankMeetingByUniRunsName) {
  expect_death_told_to_all({{"UNISONO_TEST_URL", "env://"},
                            {"UNISONO_MEETING", "unix:unisono-test-" + std::to_string(getpid())}});
}

}  // namespace
}  // namespace unisono
