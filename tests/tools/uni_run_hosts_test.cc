// uni-run's host file and what goes over ssh, with a shell in ssh's place: tests/launchers has the
// real one.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/tools/run_job.h"

namespace unisono::tools_test {
namespace {

class UniRunHosts : public UniRun {
 protected:
  void SetUp() override {
    UniRun::SetUp();
    std::string pattern = std::filesystem::temp_directory_path() / "unisono-hosts-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    // As ssh: a host's name, then one text for its shell.
    write("ssh",
          "test \"$1\" = lost && { echo no route to $1 >&2; exit 255; }\nexec sh -c \"$2\"\n");
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  std::vector<std::string> words(const std::string& hosts, std::vector<std::string> more) {
    std::vector<std::string> all{
        "--hosts", write("hosts", hosts), "--ssh", "sh " + folder_ + "/ssh", "--bind", "none"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::string folder_;
};

TEST_F(UniRunHosts, RanksFillTheHostsInOrder) {
  const std::string show =
      "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $WORLD_SIZE $GROUP_RANK "
      "$GROUP_WORLD_SIZE";
  const Outcome all =
      uni_run(words("a slots=2 # two\n\n  b:1\r\n# none\nuser@c slots=3\n", {"sh", "-c", show}));
  ASSERT_EQ(all.status, 0) << all;
  const char* const expected[] = {"0 0 2 6 0 3\n", "1 1 2 6 0 3\n", "2 0 1 6 1 3\n",
                                  "3 0 3 6 2 3\n", "4 1 3 6 2 3\n", "5 2 3 6 2 3\n"};
  for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(all.of_rank(rank), expected[rank]) << all;

  const Outcome fewer = uni_run(words("a:2\nb:2\n", {"-n", "3", "sh", "-c", show}));
  ASSERT_EQ(fewer.status, 0) << fewer;
  EXPECT_EQ(fewer.of_rank(2), "2 0 1 3 1 2\n") << fewer;
}

TEST_F(UniRunHosts, AllRanksGetOneMeetingPointAndOneSecret) {
  const std::string show =
      "echo $UNISONO_MEETING $TORCHELASTIC_RUN_ID $MASTER_ADDR $MASTER_PORT "
      "$(cat /proc/self/fd/$UNISONO_JOB_SECRET_FD)";
  const Outcome job = uni_run(words("first\nuser@second\n", {"sh", "-c", show}));
  ASSERT_EQ(job.status, 0) << job;
  EXPECT_EQ(job.of_rank(0), job.of_rank(1)) << job;
  EXPECT_EQ(job.of_rank(0).find("tcp://first:"), 0u) << job;
  EXPECT_NE(job.of_rank(0).find(" first "), std::string::npos) << job;
}

TEST_F(UniRunHosts, WhatAShellWouldTakeApartArrivesWhole) {
  const std::string nasty = "it's \"$HOME\" `x` \\ * ; & | <> (a)\tb";
  const Outcome job = uni_run(words("a\n", {"--env", "NASTY=" + nasty, "sh", "-c",
                                            "printf '%s\\n' \"$1\" \"$NASTY\"", "sh", nasty}));
  ASSERT_EQ(job.status, 0) << job;
  EXPECT_EQ(job.of_rank(0), nasty + "\n" + nasty + "\n") << job;
}

TEST_F(UniRunHosts, TheFirstFailureEndsAllHostsAndNothingIsLeft) {
  RunningJob job(
      words("a:2\nb:2\n", {"sh", "-c", "test $RANK = 3 && exit 9; sleep 1000 & sleep 1000"}));
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.status, 9) << outcome;
  EXPECT_TRUE(outcome.says("rank 3")) << outcome;
  EXPECT_TRUE(outcome.says("host b")) << outcome;
  EXPECT_TRUE(outcome.says("ending the other hosts")) << outcome;
  job.await_nobody();
}

TEST_F(UniRunHosts, AHostThatCannotBeReachedEndsTheJobBeforeItBegins) {
  const Outcome outcome = uni_run(words("a\nlost\n", {"echo", "began"}));
  EXPECT_EQ(outcome.status, 255) << outcome;
  EXPECT_TRUE(outcome.says("no route to lost")) << outcome;
  EXPECT_TRUE(outcome.says("host lost")) << outcome;
  EXPECT_EQ(outcome.out, "") << outcome;
}

TEST_F(UniRunHosts, ASignalReachesTheRanksOfAllHosts) {
  RunningJob job(words("a:2\nb:1\n", {"sh", "-c",
                                      "trap 'echo got it; kill $!; exit 0' USR1; sleep 1000 & "
                                      "echo ready; wait"}));
  job.await("ready", 3);
  job.signal(SIGUSR1);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.status, 0) << outcome;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_NE(outcome.of_rank(rank).find("got it"), std::string::npos) << outcome;
  }
  job.await_nobody();
}

TEST_F(UniRunHosts, NothingIsLeftAnywhereWhenUniRunIsKilled) {
  RunningJob job(words("a:2\nb:1\n", {"sh", "-c", "sleep 1000 & echo ready; wait"}));
  job.await("ready", 3);
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait().status, -SIGKILL);
  job.await_nobody();
}

TEST_F(UniRunHosts, WrongHostsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "names no host"},
      {"# none\n", "names no host"},
      {"a\nb slots=0\n", "hosts:2: 'slots=0'"},
      {"a slot=2\n", "hosts:1: 'slot=2'"},
      {"a:x\n", "'a:x' is not NAME:SLOTS"},
      {"-oProxyCommand=x\n", "is no name of a host"},
      {"a:2\n", "3 ranks, but the hosts have 2 slots"},
  };
  for (const auto& [hosts, message] : cases) {
    const Outcome outcome = uni_run(words(hosts, {"-n", "3", "true"}));
    EXPECT_EQ(outcome.status, 2) << hosts << outcome;
    EXPECT_TRUE(outcome.says(message)) << hosts << outcome;
  }
  EXPECT_TRUE(uni_run({"-H", "a,,b", "true"}).says("-H: '' is no name"));
  EXPECT_TRUE(uni_run({"-H", "", "true"}).says("-H: '' is no name"));
  EXPECT_TRUE(uni_run({"--hosts", folder_ + "/none", "true"}).says("cannot be read"));
  EXPECT_TRUE(uni_run({"true"}).says("-n"));
}

}  // namespace
}  // namespace unisono::tools_test
