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

TEST_F(UniPlan, ProvesAndPrintsPlansOverHosts) {
  Outcome outcome = uni_plan("verify --algorithm two_level --hosts 3,1,2");
  EXPECT_EQ(outcome.exit_status, 0) << outcome.text;
  // 8 of the 9 collectives; 4 of them from each of 6 roots; with and without multicast.
  EXPECT_TRUE(contains(outcome, "56 plans proved, 6 to 6 ranks")) << outcome.text;
  outcome = uni_plan("print --algorithm two_level --collective gather --hosts 2,2 --rank 2");
  EXPECT_EQ(outcome.exit_status, 0) << outcome.text;
  EXPECT_TRUE(contains(outcome, "rank 2 of 4")) << outcome.text;
  EXPECT_NE(uni_plan("print --algorithm two_level --collective gather --ranks 4").exit_status, 0);
}

// A path of this process's own, gone with the object.
class Scratch {
 public:
  explicit Scratch(const char* name)
      : path_(testing::TempDir() + name + "-" + std::to_string(getpid())) {}
  ~Scratch() { std::remove(path_.c_str()); }
  Scratch(const Scratch&) = delete;
  const std::string& path() const { return path_; }
  void write(const std::string& text) const {
    FILE* const file = std::fopen(path_.c_str(), "w");
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(std::fwrite(text.data(), 1, text.size(), file), text.size());
    std::fclose(file);
  }

 private:
  std::string path_;
};

TEST_F(UniPlan, ExportsWhatItImportsAndDraws) {
  const Scratch plan("plan"), picture("picture");
  Outcome outcome = uni_plan("export ring --collective all_reduce --ranks 4 -o " + plan.path());
  ASSERT_EQ(outcome.exit_status, 0) << outcome.text;
  outcome = uni_plan("import " + plan.path());
  EXPECT_EQ(outcome.exit_status, 0) << outcome.text;
  EXPECT_TRUE(contains(outcome, "ring all_reduce of 4 ranks: proved; 2 lanes, 32 steps, hash"))
      << outcome.text;
  outcome = uni_plan("draw --plan " + plan.path() + " -o " + picture.path());
  EXPECT_EQ(outcome.exit_status, 0) << outcome.text;
  // The same plan takes the same time; and needs its number of ranks.
  const std::string machines = " --hosts 4 --sizes 1M";
  EXPECT_EQ(uni_plan("simulate --whole --algorithms ring --collective all_reduce" + machines).text,
            uni_plan("simulate --plan " + plan.path() + machines).text);
  outcome = uni_plan("simulate --hosts 5 --plan " + plan.path());
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_TRUE(contains(outcome, "is for 4 ranks, the topology has 5")) << outcome.text;
  EXPECT_EQ(uni_plan("draw ring --collective all_reduce --ranks 4").text,
            uni_plan("draw --plan " + plan.path()).text);
}

TEST_F(UniPlan, RefusesWrongArgumentsWithStatusTwo) {
  EXPECT_EQ(uni_plan("").exit_status, 2);
  EXPECT_EQ(uni_plan("print --algorithm ring --collective all_reduce --ranks 0").exit_status, 2);
  Outcome outcome = uni_plan("draw ring --ranks 4");
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_TRUE(contains(outcome, "--collective: which one? There are: all_reduce")) << outcome.text;
  outcome = uni_plan("simulate --collective all_reduce");
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_TRUE(contains(outcome, "how many ranks")) << outcome.text;
}

TEST_F(UniPlan, SaysThatItsOutputCouldNotBeWritten) {
  for (const char* words :
       {"list", "print --algorithm ring --collective all_reduce --ranks 4",
        "verify --algorithm ring --ranks 3", "draw ring --collective all_reduce --ranks 4"}) {
    const Outcome outcome = uni_plan(std::string(words) + " 2>&1 >/dev/full; exit $?");
    EXPECT_EQ(outcome.exit_status, 1) << words;
    EXPECT_TRUE(contains(outcome, "uni-plan: standard output: ")) << words << outcome.text;
  }
}

TEST_F(UniPlan, ImportsNothingThatIsNotProved) {
  std::string text = uni_plan("export ring --collective all_reduce --ranks 3").text;
  const Scratch plan("plan");
  // Block 1 where block 2 is due.
  const std::string good = "input:2+1 send 0 length 2+1";
  ASSERT_NE(text.find(good), std::string::npos);
  text.replace(text.find(good), good.size(), "input:1+1 send 0 length 1+1");
  plan.write(text);
  Outcome outcome = uni_plan("import " + plan.path());
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_TRUE(contains(outcome, "not proved: rule 9")) << outcome.text;
  plan.write("unisono-plan 1\nalgorithm x\ncollective all_reduce\nranks many\n");
  outcome = uni_plan("import " + plan.path());
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_TRUE(contains(outcome, "line 4: ranks: 'many' is not a number")) << outcome.text;
}

TEST_F(UniPlan, SimulatesAndNamesTheFastest) {
  const std::string command =
      "simulate --collective all_reduce --hosts 64 --algorithms ring,double_binary_tree "
      "--nic-gbit 100 --nic-latency-us 5 --reduce-gbytes 0 --copy-gbytes 0 --sizes 8K,256M";
  const Outcome table = uni_plan(command);
  EXPECT_EQ(table.exit_status, 0);
  // Latency decides at 8 KiB, at 256 MiB bytes: both send 2 S, the ring a little less.
  EXPECT_TRUE(contains(table, "8K to 8K: double_binary_tree wins")) << table.text;
  EXPECT_TRUE(contains(table, "256M to 256M: ring wins")) << table.text;
  const Outcome json = uni_plan(command + " --json");
  for (const char* words : {"\"ranks\": 64", "\"fastest\": \"double_binary_tree\"",
                            "\"fastest\": \"ring\"", "\"bytes\": 268435456", "\"us\": "})
    EXPECT_TRUE(contains(json, words)) << words << " in\n" << json.text;
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
        Case{"verify --ranks 5-3", "range such as 1-17"},
        Case{"verify --ranks 3x", "'3x'"},
        Case{"verify --hosts 3,x", "'3,x' is not a list of ranks on each host"},
        Case{"verify --hosts 3,", "'3,'"},
        Case{"verify --hosts 0", "'0'"},
        Case{"verify --hosts 40000", "32768 ranks at most"},
        Case{"verify --ranks 3 --hosts 3", "--hosts"},
        Case{"verify --algorithm magic", "no algorithm is called"},
        Case{"verify --algorithm pairwise --collective barrier", "no algorithm does"},
        Case{"draw ring --collective all_reduce", "--ranks"},
        Case{"draw ring --collective all_reduce --ranks 65", "at most 64 ranks"},
        Case{"draw ring --collective all_reduce --ranks 32768", "at most 64 ranks"},
        Case{"draw ring --plan x --collective reduce --ranks 3", "--plan"},
        Case{"import /no/such/file", "No such file"},
        Case{"simulate --collective all_reduce --hosts 2 --sizes 8X", "'8X' is not a size"},
        Case{"simulate --collective all_reduce --hosts 2 --sizes 8K-1K", "is not a range"},
        Case{"simulate --collective gather --hosts 3 --algorithms ring", "these do: one_shot"},
        Case{"simulate --collective gather --hosts 3 --root 3", "root 3"},
        Case{"simulate --hosts 3", "--collective: which one?"},
        Case{"simulate --collective gather --hosts 2 --nic-gbit 0", "nic.gbit_per_s: 0 is no rate"},
        Case{"foo", "foo is no subcommand; they are print, list, verify"},
        Case{"", "subcommand"}}) {
    const Outcome outcome = uni_plan(one.arguments);
    EXPECT_NE(outcome.exit_status, 0) << one.arguments;
    EXPECT_TRUE(contains(outcome, one.words)) << one.arguments << "\n" << outcome.text;
  }
}

}  // namespace
