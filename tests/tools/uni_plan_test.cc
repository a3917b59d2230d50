// uni-plan, run as its users run it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

struct Outcome {
  int exit_status = -1;
  std::string text;  // standard output and error together
};

std::string program() {
  const char* const build = std::getenv("UNISONO_BUILD_DIR");
  return std::string(build == nullptr ? "." : build) + "/bin/uni-plan";
}

class UniPlan : public testing::Test {
 protected:
  void SetUp() override {
    if (access(program().c_str(), X_OK) != 0) GTEST_SKIP() << program() << " was not built";
  }
};

Outcome uni_plan(const std::string& arguments) {
  const std::string command = program() + " " + arguments + " 2>&1";
  Outcome outcome;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> bytes;
  while (const size_t got = fread(bytes.data(), 1, bytes.size(), pipe))
    outcome.text.append(bytes.data(), got);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_status = WEXITSTATUS(status);
  return outcome;
}

bool contains(const Outcome& outcome, const std::string& words) {
  return outcome.text.find(words) != std::string::npos;
}

TEST_F(UniPlan, ListsEveryAlgorithm) {
  const Outcome outcome = uni_plan("list");
  EXPECT_EQ(outcome.exit_status, 0);
  for (const char* name :
       {"one_shot", "direct", "ring", "binomial_tree", "recursive_doubling", "pairwise"})
    EXPECT_TRUE(contains(outcome, name)) << outcome.text;
}

TEST_F(UniPlan, PrintsLanesRepeatsAndAwaitsOfOneRank) {
  const Outcome outcome =
      uni_plan("print --algorithm direct --collective all_reduce --ranks 4 --rank 1");
  EXPECT_EQ(outcome.exit_status, 0);
  for (const char* words : {"rank 1 of 4", "lane copy-in", "lane reduce", "lane copy-out",
                            "repeat 3 times", "final", "awaits copy-in.0", "all but the writer"})
    EXPECT_TRUE(contains(outcome, words)) << words << " in\n" << outcome.text;
  EXPECT_FALSE(contains(outcome, "rank 0 of 4"));
}

TEST_F(UniPlan, UsesNoSharedChannelsWithoutMulticast) {
  const Outcome outcome = uni_plan(
      "print --algorithm direct --collective all_reduce --ranks 4 --no-multicast --unroll");
  EXPECT_EQ(outcome.exit_status, 0);
  EXPECT_TRUE(contains(outcome, "rank 3 of 4"));
  EXPECT_FALSE(contains(outcome, "all but the writer"));
}

TEST_F(UniPlan, PrintsEveryRankAsJson) {
  const Outcome outcome =
      uni_plan("print --algorithm ring --collective all_reduce --ranks 3 --json");
  EXPECT_EQ(outcome.exit_status, 0);
  EXPECT_EQ(outcome.text.front(), '{');
  for (const char* words : {"\"ranks\": 3", "\"rank\": 0", "\"rank\": 2", "\"awaits\"",
                            "\"channels\"", "\"repeats\"", "\"final\": true"})
    EXPECT_TRUE(contains(outcome, words)) << words;
}

TEST_F(UniPlan, ProvesASelection) {
  const Outcome outcome = uni_plan("verify --algorithm ring --collective all_reduce --ranks 1-5");
  EXPECT_EQ(outcome.exit_status, 0);
  EXPECT_TRUE(contains(outcome, "10 plans proved, 1 to 5 ranks")) << outcome.text;
}

TEST_F(UniPlan, ExplainsWhatItCannotDo) {
  struct Case {
    const char *arguments, *words;
  };
  for (const Case& one :
       {Case{"print --algorithm ring --collective gather --ranks 3", "these do: one_shot, direct"},
        Case{"print --algorithm magic --collective gather --ranks 3", "no algorithm is called"},
        Case{"print --algorithm ring --collective song --ranks 3", "no collective is called"},
        Case{"print --algorithm ring --collective reduce --ranks 3 --rank 3", "rank 3 is not one"},
        Case{"print --algorithm ring --collective reduce --ranks 3 --root -1", "root -1"},
        Case{"print --algorithm ring --collective reduce --ranks 0", "--ranks"},
        Case{"verify --ranks 5-3", "range such as 1-17"}, Case{"verify --ranks 3x", "'3x'"},
        Case{"verify --algorithm magic", "no algorithm is called"},
        Case{"verify --algorithm pairwise --collective barrier", "no algorithm does"},
        Case{"", "subcommand"}}) {
    const Outcome outcome = uni_plan(one.arguments);
    EXPECT_NE(outcome.exit_status, 0) << one.arguments;
    EXPECT_TRUE(contains(outcome, one.words)) << one.arguments << "\n" << outcome.text;
  }
}

}  // namespace
