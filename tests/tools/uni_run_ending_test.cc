// uni-run: which rank is named as the cause of a job's end, and that every rank ends.
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "tests/tools/run_job.h"

namespace unisono::tools_test {
namespace {

// A fifo that ranks find as $FIFO.
class Fifo {
 public:
  Fifo() : path_(testing::TempDir() + "uni_run_ending_" + std::to_string(getpid())) {
    EXPECT_EQ(0, mkfifo(path_.c_str(), 0600));
  }
  ~Fifo() { (void)unlink(path_.c_str()); }
  Fifo(const Fifo&) = delete;
  std::string variable() const { return "FIFO=" + path_; }

 private:
  const std::string path_;
};

// By rank, of ranks that have written "pid NUMBER".
std::vector<pid_t> pids(const RunningJob& job, size_t ranks) {
  std::vector<pid_t> found(ranks);
  std::istringstream lines(job.output());
  for (std::string line; std::getline(lines, line);) {
    size_t rank = 0;
    int pid = 0;
    if (std::sscanf(line.c_str(), "[%zu] pid %d", &rank, &pid) == 2 && rank < ranks) {
      found[rank] = pid;
    }
  }
  return found;
}

void wait_until_ended(pid_t pid) {
  for (char state = '?'; state != 'Z' && state != '!';) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(stat, text);
    const size_t name_end = text.rfind(") ");
    state = name_end == std::string::npos ? '!' : text[name_end + 2];
    (void)sched_yield();
  }
}

// Two ranks end one after the other while uni-run does not look. `first`, `then`: signals; the
// ranks turn SIGUSR1 into exit status 3.
Outcome end_unseen(int first_rank, int first, int then) {
  RunningJob job(
      shell(3, "trap 'exit 3' USR1; echo pid $$; while :; do sleep 1000 & wait $!; done"));
  job.await("pid ", 3);
  const std::vector<pid_t> ranks = pids(job, 3);
  job.signal(SIGSTOP);
  const auto one = static_cast<size_t>(first_rank), other = 1 - one;
  (void)kill(ranks[one], first);
  wait_until_ended(ranks[one]);
  (void)kill(ranks[other], then);
  wait_until_ended(ranks[other]);
  job.signal(SIGCONT);
  return job.wait();
}

TEST_F(UniRun, OfRanksThatFailTogetherTheOneThatFailedFirstIsNamed) {
  for (const int first : {0, 1}) {
    const Outcome outcome = end_unseen(first, SIGUSR1, SIGUSR1);
    EXPECT_EQ(outcome.status, 3) << outcome;
    const std::string name = "uni-run: rank " + std::to_string(first) + " (pid ";
    EXPECT_TRUE(outcome.says(name)) << outcome;
  }
}

TEST_F(UniRun, OfRanksThatFailTogetherTheOneThatWasKilledIsNamed) {
  for (const int killed : {0, 1}) {
    const Outcome outcome = end_unseen(1 - killed, SIGUSR1, SIGKILL);
    EXPECT_EQ(outcome.status, 128 + SIGKILL) << outcome;
    EXPECT_TRUE(outcome.says("uni-run: rank " + std::to_string(killed) + " (pid ")) << outcome;
    EXPECT_TRUE(outcome.says(") was killed by SIGKILL")) << outcome;
  }
}

TEST_F(UniRun, RankThatIsKilledRightAfterAnotherFailedIsNamed) {
  // Rank 1 reads until rank 0 is gone.
  const Fifo fifo;
  const Outcome outcome = uni_run(shell(3,
                                        "case $RANK in 0) exec 9> $FIFO; exit 3;; "
                                        "1) read line < $FIFO; kill -9 $$;; esac; exec sleep 1000",
                                        {"--env", fifo.variable()}));
  EXPECT_EQ(outcome.status, 128 + SIGKILL) << outcome;
  EXPECT_TRUE(outcome.says("uni-run: rank 1 (pid ")) << outcome;
  EXPECT_TRUE(outcome.says("rank 0 exited with status 3")) << outcome;
}

TEST_F(UniRun, RanksThatIgnoreAForwardedSignalAreKilledAfterTheGracePeriod) {
  for (const int number : {SIGTERM, SIGINT}) {
    RunningJob job(shell(2, "trap '' TERM INT; echo ready; exec sleep 1000", {"--grace", "0.2"}));
    job.await("ready\n", 2);
    job.signal(number);
    const Outcome outcome = job.wait();
    EXPECT_EQ(outcome.status, 128 + number) << outcome;
    EXPECT_TRUE(outcome.says("still running 0.2 s after SIG")) << outcome;
    EXPECT_TRUE(outcome.says("ranks 0, 1 were killed by SIGKILL")) << outcome;
    job.await_nobody();
  }
}

TEST_F(UniRun, RankThatEndsInOrderAfterAForwardedSignalIsNoFailure) {
  RunningJob job(
      shell(2, "trap 'exit 0' TERM; echo ready; while :; do sleep 1000 & wait $!; done"));
  job.await("ready\n", 2);
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().status, 0);
}

}  // namespace
}  // namespace unisono::tools_test
