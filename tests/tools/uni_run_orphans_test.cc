// uni-run: signals reach the ranks, and nothing of a job outlives it, however it ends.
#include "tests/tools/run_job.h"

namespace unisono::tools_test {
namespace {

// Says "ready", and "got NAME" at each signal; ends at TERM with status 7. Starts a process more.
constexpr const char* kTrapping =
    "for s in INT HUP USR1 USR2; do trap \"echo got $s\" $s; done; trap 'echo got TERM; exit 7' "
    "TERM; echo ready; while :; do sleep 1000 & wait $!; done";

TEST_F(UniRun, SignalsAreForwardedToEveryRank) {
  RunningJob job(shell(3, kTrapping, {"--grace", "100"}));
  job.await("ready\n", 3);
  const std::pair<int, std::string> kSignals[] = {
      {SIGUSR1, "USR1"}, {SIGUSR2, "USR2"}, {SIGHUP, "HUP"}, {SIGINT, "INT"}};
  for (const auto& [number, name] : kSignals) {
    job.signal(number);
    job.await("got " + name + "\n", 3);
  }
  job.signal(SIGTERM);
  job.await("got TERM\n", 3);
  EXPECT_EQ(job.wait().status, 7);
  job.await_nobody();
}

TEST_F(UniRun, RanksThatDieOfAForwardedSignalGiveItsStatus) {
  RunningJob job(shell(2, "echo ready; exec sleep 1000"));
  job.await("ready\n", 2);
  job.signal(SIGTERM);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.status, 128 + SIGTERM) << outcome;
  EXPECT_TRUE(outcome.says("was killed by SIGTERM")) << outcome;
}

TEST_F(UniRun, SecondInterruptKills) {
  RunningJob job(shell(2, kTrapping));
  job.await("ready\n", 2);
  job.signal(SIGINT);
  job.await("got INT\n", 2);  // so the two do not become one
  job.signal(SIGINT);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.status, 128 + SIGINT) << outcome;
  EXPECT_TRUE(outcome.says("ranks 0, 1 were killed by SIGKILL")) << outcome;
  job.await_nobody();
}

TEST_F(UniRun, SignalIgnoredAtTheStartStaysIgnored) {
  (void)signal(SIGHUP, SIG_IGN);  // as nohup does
  RunningJob job(shell(2, "echo ready; read line; exit 0"), "", true);
  (void)signal(SIGHUP, SIG_DFL);
  job.await("ready\n", 2);
  job.signal(SIGHUP);
  job.close_input();
  EXPECT_EQ(job.wait().status, 0);
}

TEST_F(UniRun, GrandchildrenDoNotOutliveTheJob) {
  // In the rank's group, in a group of their own, and orphans of orphans.
  RunningJob job(shell(2,
                       "sleep 1000 & setsid sleep 1000 & "
                       "setsid sh -c 'sleep 1000 & setsid sleep 1000 & exit 0' & wait $!; exit 0"));
  EXPECT_EQ(job.wait().status, 0);
  job.await_nobody();
}

TEST_F(UniRun, GrandchildrenDoNotOutliveAFailedJob) {
  RunningJob job(shell(2, "sleep 1000 & setsid sleep 1000 & [ $RANK = 1 ] && exit 9; wait"));
  EXPECT_EQ(job.wait().status, 9);
  job.await_nobody();
}

TEST_F(UniRun, NothingOutlivesUniRunWhenItIsKilled) {
  RunningJob job(shell(3, "sleep 1000 & setsid sleep 1000 & echo ready; trap '' TERM HUP; wait"));
  job.await("ready\n", 3);
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait().status, -SIGKILL);
  job.await_nobody();
}

TEST_F(UniRun, NothingOutlivesUniRunWhenItsWholeProcessGroupIsKilled) {
  RunningJob job(shell(2, "sleep 1000 & setsid sleep 1000 & echo ready; wait"));
  job.await("ready\n", 2);
  ASSERT_EQ(0, kill(-job.pid(), SIGKILL));
  EXPECT_EQ(job.wait().status, -SIGKILL);
  job.await_nobody();
}

TEST_F(UniRun, StoppedAndContinuedJobEndsWell) {
  RunningJob job(shell(2, "echo ready; read line; exit 0"), "", true);
  job.await("ready\n", 2);
  job.signal(SIGTSTP);
  int status = 0;
  ASSERT_EQ(job.pid(), waitpid(job.pid(), &status, WUNTRACED));
  EXPECT_TRUE(WIFSTOPPED(status));
  job.signal(SIGCONT);
  job.close_input();
  EXPECT_EQ(job.wait().status, 0);
}

}  // namespace
}  // namespace unisono::tools_test
