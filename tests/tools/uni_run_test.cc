// uni-run, run as its users run it: what ranks see, what they write, how the job ends.
#include <pty.h>
#include <sched.h>
#include <sys/stat.h>

#include <set>

#include "tests/tools/run_job.h"

namespace unisono::tools_test {
namespace {

TEST_F(UniRun, ExitsWithZeroWhenAllRanksDo) {
  const Outcome outcome = uni_run(shell(3, "exit 0"));
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_EQ(outcome.out + outcome.err, "");
}

TEST_F(UniRun, FirstFailureEndsTheOtherRanksAndIsReported) {
  const Outcome outcome =
      uni_run(shell(3, "if [ $RANK = 1 ]; then echo all is lost >&2; exit 3; fi; exec sleep 1000"));
  EXPECT_EQ(outcome.status, 3) << outcome;
  EXPECT_TRUE(outcome.says("uni-run: rank 1 (pid ")) << outcome;
  EXPECT_TRUE(outcome.says(") exited with status 3")) << outcome;
  EXPECT_TRUE(outcome.says("uni-run:   all is lost\n")) << outcome;
  EXPECT_TRUE(outcome.says("ranks 0, 2 were killed by SIGTERM")) << outcome;
}

TEST_F(UniRun, RankThatIsKilledIsReportedWithItsSignal) {
  const Outcome outcome = uni_run(shell(4, "[ $RANK = 2 ] && kill -9 $$; exec sleep 1000"));
  EXPECT_EQ(outcome.status, 128 + SIGKILL) << outcome;
  EXPECT_TRUE(outcome.says("uni-run: rank 2 (pid ")) << outcome;
  EXPECT_TRUE(outcome.says(") was killed by SIGKILL")) << outcome;
}

TEST_F(UniRun, RankThatIgnoresTermIsKilledAfterTheGracePeriod) {
  // Rank 1 fails only when rank 0 ignores the signal already: the fifo holds it until then.
  const std::string fifo = testing::TempDir() + "uni_run_grace_" + std::to_string(getpid());
  ASSERT_EQ(0, mkfifo(fifo.c_str(), 0600));
  const Outcome outcome =
      uni_run(shell(2,
                    "if [ $RANK = 0 ]; then trap '' TERM; echo > $FIFO; sleep 1000; sleep 1000; "
                    "else read line < $FIFO; exit 4; fi",
                    {"--grace", "0.2", "--env", "FIFO=" + fifo}));
  (void)unlink(fifo.c_str());
  EXPECT_EQ(outcome.status, 4) << outcome;
  EXPECT_TRUE(outcome.says("rank 0 was killed by SIGKILL")) << outcome;
}

TEST_F(UniRun, TimeoutEndsTheJobAndNamesTheLateRanks) {
  const Outcome outcome =
      uni_run(shell(3, "[ $RANK = 1 ] || exec sleep 1000", {"--timeout", "0.3"}));
  EXPECT_EQ(outcome.status, 124) << outcome;
  EXPECT_TRUE(outcome.says("the time of 0.3 s is up, still running: ranks 0")) << outcome;
}

TEST_F(UniRun, CommandThatCannotRunIsNamed) {
  const Outcome missing = uni_run({"-n", "2", "no-such-command-anywhere"});
  EXPECT_EQ(missing.status, 127);
  EXPECT_EQ(missing.err, "uni-run: no-such-command-anywhere: command not found\n");
  const Outcome forbidden = uni_run({"-n", "2", "/etc/passwd"});
  EXPECT_EQ(forbidden.status, 126);
  EXPECT_TRUE(forbidden.says("/etc/passwd: Permission denied")) << forbidden;
}

TEST_F(UniRun, WrongArgumentsAreNamed) {
  const std::pair<std::vector<std::string>, std::string> kCases[] = {
      {{"-n", "0", "true"}, "--ranks"},
      {{"true"}, "--ranks"},
      {{"-n", "2"}, "no command"},
      {{"-n", "2", "--bogus", "true"}, "--bogus"},
      {{"-n", "2", "--env", "novalue", "true"}, "novalue"},
      {{"-n", "2", "--master", "host", "true"}, "HOST:PORT"},
      {{"-n", "2", "--bind", "socket", "true"}, "socket"}};
  for (const auto& [arguments, words] : kCases) {
    const Outcome outcome = uni_run(arguments);
    EXPECT_EQ(outcome.status, 2) << words << "\n" << outcome;
    EXPECT_TRUE(outcome.says(words)) << words << "\n" << outcome;
  }
}

TEST_F(UniRun, OptionsAfterTheCommandAreTheCommandsOwn) {
  const Outcome outcome = uni_run({"-n", "1", "--", "echo", "--bind", "-n", "--", "x y"});
  EXPECT_EQ(outcome.out, "[0] --bind -n -- x y\n") << outcome;
}

TEST_F(UniRun, RanksFindTorchrunsVariables) {
  const Outcome outcome = uni_run(
      shell(3,
            "echo $RANK $LOCAL_RANK $ROLE_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $ROLE_WORLD_SIZE "
            "$GROUP_RANK $GROUP_WORLD_SIZE $TORCHELASTIC_USE_AGENT_STORE $MASTER_ADDR $COLOR",
            {"--env", "COLOR=blue", "--env", "RANK_UNUSED="}));
  for (int rank = 0; rank < 3; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_EQ(outcome.of_rank(rank),
              number + " " + number + " " + number + " 3 3 3 0 1 False 127.0.0.1 blue\n")
        << outcome;
  }
}

TEST_F(UniRun, RanksShareOneMeetingPointAndOneSecret) {
  const Outcome outcome = uni_run(shell(3,
                                        "echo $UNISONO_MEETING $MASTER_PORT; "
                                        "cat /proc/self/fd/$UNISONO_JOB_SECRET_FD"));
  EXPECT_EQ(outcome.of_rank(0).rfind("unix:uni-run-", 0), 0u) << outcome;
  const size_t line_end = outcome.of_rank(0).find('\n');
  EXPECT_EQ(outcome.of_rank(0).size() - line_end, 1u + 64u + 1u) << outcome;
  EXPECT_EQ(outcome.of_rank(0), outcome.of_rank(1));
  EXPECT_EQ(outcome.of_rank(0), outcome.of_rank(2));
  EXPECT_NE(outcome.of_rank(0), uni_run(shell(1, "echo $UNISONO_MEETING $MASTER_PORT")).of_rank(0));
}

TEST_F(UniRun, MasterIsAsGiven) {
  const Outcome outcome =
      uni_run(shell(1, "echo $MASTER_ADDR $MASTER_PORT", {"--master", "node-7:29500"}));
  EXPECT_EQ(outcome.of_rank(0), "node-7 29500\n") << outcome;
}

TEST_F(UniRun, ChosenMasterPortCanBeListenedOn) {
  // As a store does.
  const Outcome outcome = uni_run(
      {"-n", "1", "python3", "-c",
       "import os,socket\n"
       "s=socket.socket(); s.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1)\n"
       "s.bind(('',int(os.environ['MASTER_PORT']))); s.listen()\n"
       "c=socket.create_connection((os.environ['MASTER_ADDR'],int(os.environ['MASTER_PORT'])))\n"
       "print('met')"});
  EXPECT_EQ(outcome.out, "[0] met\n") << outcome;
}

TEST_F(UniRun, RanksArePinnedToOneAllowedCoreEachUnlessBindIsNone) {
  const std::string script = "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status";
  cpu_set_t allowed;
  ASSERT_EQ(0, sched_getaffinity(0, sizeof(allowed), &allowed));
  const int cores = CPU_COUNT(&allowed), ranks = cores + 1;
  const Outcome outcome = uni_run(shell(ranks, script));
  std::set<std::string> used;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string core = outcome.of_rank(rank);
    EXPECT_TRUE(CPU_ISSET(std::atoi(core.c_str()), &allowed)) << outcome;
    EXPECT_EQ(core.find_first_of("-,"), std::string::npos) << outcome;
    used.insert(core);
  }
  EXPECT_EQ(used.size(), static_cast<size_t>(cores));
  EXPECT_EQ(outcome.of_rank(0), outcome.of_rank(cores)) << "round-robin";
  // A single rank's share is everything, as without binding.
  const Outcome whole = uni_run(shell(1, script, {"--bind", "share"}));
  const Outcome unbound = uni_run(shell(1, script, {"--bind", "none"}));
  EXPECT_EQ(whole.of_rank(0), unbound.of_rank(0));
  EXPECT_EQ(unbound.of_rank(0).find_first_of("-,") == std::string::npos, cores == 1) << unbound;
}

TEST_F(UniRun, LinesOfRanksAreNeverMixedWithin) {
  constexpr int kRanks = 4, kLines = 200;
  const std::string filler(700, 'x');
  // Each line is written in two pieces, to both streams in turn.
  const Outcome outcome =
      uni_run({"-n", std::to_string(kRanks), "--env", "FILLER=" + filler, "sh", "-c",
               "exec 2>&1; i=0; while [ $i -lt 200 ]; do printf \"$RANK:$i:\"; echo $FILLER; "
               "i=$((i+1)); done"});
  std::map<std::string, int> next;
  for (const std::string& line : outcome.lines()) {
    const std::string rank = line.substr(1, 1);
    ASSERT_EQ(line, "[" + rank + "] " + rank + ":" + std::to_string(next[rank]++) + ":" + filler);
  }
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(next[std::to_string(rank)], kLines);
}

TEST_F(UniRun, UnfinishedLastLineIsWrittenAtTheEnd) {
  const Outcome outcome = uni_run(shell(2, "printf 'no newline'; printf 'nor here' >&2"));
  EXPECT_EQ(outcome.of_rank(0), "no newline\n") << outcome;
  EXPECT_EQ(outcome.of_rank(1), "no newline\n") << outcome;
  EXPECT_TRUE(outcome.says("[0] nor here\n")) << outcome;
}

TEST_F(UniRun, ProgressBarsAndWindowsLinesKeepTheirEnds) {
  const Outcome outcome = uni_run(shell(1, "printf '1%%\\r2%%\\rdone\\r\\nnext\\n'"));
  EXPECT_EQ(outcome.out, "[0] 1%\r[0] 2%\r[0] done\r\n[0] next\n");
}

TEST_F(UniRun, NoPrefixPassesBytesThrough) {
  const Outcome outcome = uni_run(shell(1, "printf 'a\\r b'; printf c >&2", {"--no-prefix"}));
  EXPECT_EQ(outcome.out, "a\r b");
  EXPECT_EQ(outcome.err, "c");
}

TEST_F(UniRun, MuchOutputArrivesWhole) {
  const Outcome outcome = uni_run(shell(2, "seq 1 40000"));
  std::string expected;
  for (int i = 1; i <= 40000; ++i) expected += std::to_string(i) + "\n";
  EXPECT_TRUE(outcome.of_rank(0) == expected);
  EXPECT_TRUE(outcome.of_rank(1) == expected);
}

TEST_F(UniRun, ReaderThatGoesAwayEndsTheRanks) {
  RunningJob job(shell(2, "while :; do echo y; done"));
  job.await("y\n", 1);
  job.close_output();
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.status, 128 + SIGPIPE) << outcome.err;
}

TEST_F(UniRun, StandardInputGoesToRankZeroOnly) {
  const Outcome outcome = uni_run({"-n", "3", "cat"}, "hello\nworld\n");
  EXPECT_EQ(outcome.out, "[0] hello\n[0] world\n") << outcome;
  EXPECT_EQ(outcome.status, 0);
}

TEST_F(UniRun, RankZeroReadsTheTerminal) {
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    const std::string path = program("uni-run");
    (void)execl(path.c_str(), "uni-run", "-n", "2", "cat", nullptr);
    _exit(125);
  }
  const std::string typed = "hello\n\4";  // a line, and the end of the input
  ASSERT_EQ(static_cast<ssize_t>(typed.size()), write(terminal, typed.data(), typed.size()));
  std::string shown;
  std::array<char, 4096> bytes;
  for (ssize_t got; (got = read(terminal, bytes.data(), bytes.size())) > 0;) {
    shown.append(bytes.data(), static_cast<size_t>(got));
  }
  int status = -1;
  ASSERT_EQ(pid, waitpid(pid, &status, 0));
  (void)close(terminal);
  EXPECT_EQ(status, 0) << shown;
  EXPECT_NE(shown.find("[0] hello\r\n"), std::string::npos) << shown;
}

}  // namespace
}  // namespace unisono::tools_test
