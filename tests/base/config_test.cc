#include "base/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"

namespace unisono {
namespace {

// Every variable that the library reads. Ours and the launchers' are cleared, as the tests may run
// under any of them.
const char* const kVariables[] = {
    "UNISONO_LOG_LEVEL",
    "UNISONO_LOG_FILE",
    "UNISONO_TRANSPORTS",
    "UNISONO_ALGORITHM",
    "UNISONO_PLAN_FILE",
    "UNISONO_INTERFACES",
    "UNISONO_HOSTID",
    "UNISONO_JOB_SECRET",
    "UNISONO_JOB_SECRET_FILE",
    "UNISONO_JOB_SECRET_FD",
    "UNISONO_MEETING",
    "UNISONO_TIMEOUT_MS",
    "UNISONO_SLICE_BYTES",
    "UNISONO_REPRODUCIBLE",
    "UNISONO_KERNELS",
    "UNISONO_NCCL_LIB",
    "UNISONO_CUDART_LIB",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "JOB_COMPLETION_INDEX",
    "PMI_FD",
    "PMIX_RANK",
    "SLURM_JOB_NODELIST",
    "SLURM_STEP_NODELIST",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "OMPI_MCA_ess_base_jobid",
    "PMIX_NAMESPACE",
    "PMI_JOBID",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
};

struct Row {
  const char* variable;
  const char* value;
  std::function<std::string(const Environment&)> field;
  std::string expected;
  const char* with = nullptr;  // another variable that makes this one count, as "NAME=value"
};

std::string text(int64_t value) {
  return std::to_string(value);
}

const std::vector<Row>& rows() {
  using E = const Environment&;
  static const std::vector<Row> kRows = {
      {"UNISONO_LOG_LEVEL", "debug", [](E e) { return e.log_level; }, "debug"},
      {"UNISONO_LOG_FILE", "/x/y", [](E e) { return e.log_file; }, "/x/y"},
      {"UNISONO_TRANSPORTS", "shm,tcp", [](E e) { return e.transports; }, "shm,tcp"},
      {"UNISONO_ALGORITHM", "ring", [](E e) { return e.algorithm; }, "ring"},
      {"UNISONO_PLAN_FILE", "/p.plan", [](E e) { return e.plan_file; }, "/p.plan"},
      {"UNISONO_INTERFACES", "^docker*", [](E e) { return e.interfaces; }, "^docker*"},
      {"UNISONO_HOSTID", "h1", [](E e) { return e.host_id; }, "h1"},
      {"UNISONO_JOB_SECRET", "s", [](E e) { return e.job_secret; }, "s"},
      {"UNISONO_JOB_SECRET_FILE", "/s", [](E e) { return e.job_secret_file; }, "/s"},
      {"UNISONO_JOB_SECRET_FD", "7", [](E e) { return e.job_secret_fd; }, "7"},
      {"UNISONO_MEETING", "unix:n", [](E e) { return e.meeting; }, "unix:n"},
      {"UNISONO_TIMEOUT_MS", "1500", [](E e) { return text(e.timeout_ms); }, "1500"},
      {"UNISONO_SLICE_BYTES", "65536", [](E e) { return text(e.slice_bytes); }, "65536"},
      {"UNISONO_REPRODUCIBLE", "1", [](E e) { return text(e.reproducible); }, "1"},
      {"UNISONO_KERNELS", "avx2", [](E e) { return e.kernels + text(e.kernel_target); }, "avx22"},
      {"UNISONO_NCCL_LIB", "/n.so", [](E e) { return e.nccl_library; }, "/n.so"},
      {"UNISONO_CUDART_LIB", "/c.so", [](E e) { return e.cudart_library; }, "/c.so"},
      {"RANK", "3", [](E e) { return e.launcher + text(e.rank); }, "env3"},
      {"WORLD_SIZE", "4", [](E e) { return text(e.world_size); }, "4", "RANK=3"},
      {"LOCAL_RANK", "1", [](E e) { return text(e.local_rank); }, "1", "RANK=3"},
      {"LOCAL_WORLD_SIZE", "2", [](E e) { return text(e.local_world_size); }, "2", "RANK=3"},
      {"OMPI_COMM_WORLD_RANK", "3", [](E e) { return e.launcher + text(e.rank); }, "openmpi3"},
      {"OMPI_COMM_WORLD_SIZE", "4", [](E e) { return text(e.world_size); }, "4",
       "OMPI_COMM_WORLD_RANK=3"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1", [](E e) { return text(e.local_rank); }, "1",
       "OMPI_COMM_WORLD_RANK=3"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2", [](E e) { return text(e.local_world_size); }, "2",
       "OMPI_COMM_WORLD_RANK=3"},
      {"PMI_RANK", "3", [](E e) { return e.launcher + text(e.rank); }, "pmi3"},
      {"PMI_SIZE", "4", [](E e) { return text(e.world_size); }, "4", "PMI_RANK=3"},
      {"MPI_LOCALRANKID", "1", [](E e) { return text(e.local_rank); }, "1", "PMI_RANK=3"},
      {"MPI_LOCALNRANKS", "2", [](E e) { return text(e.local_world_size); }, "2", "PMI_RANK=3"},
      {"SLURM_PROCID", "3", [](E e) { return e.launcher + text(e.rank); }, "slurm3"},
      {"SLURM_NTASKS", "4", [](E e) { return text(e.world_size); }, "4", "SLURM_PROCID=3"},
      {"SLURM_LOCALID", "1", [](E e) { return text(e.local_rank); }, "1", "SLURM_PROCID=3"},
      {"JOB_COMPLETION_INDEX", "3", [](E e) { return e.launcher + text(e.rank); }, "kubernetes3"},
      {"PMI_FD", "7", [](E e) { return text(e.pmi_fd); }, "7"},
      {"PMIX_RANK", "0", [](E e) { return text(e.pmix); }, "1"},
      {"SLURM_JOB_NODELIST", "n[1-2]", [](E e) { return e.slurm_nodes; }, "n[1-2]"},
      {"SLURM_STEP_NODELIST", "n1", [](E e) { return e.slurm_nodes; }, "n1",
       "SLURM_JOB_NODELIST=n[1-2]"},
      {"MASTER_ADDR", "node1", [](E e) { return e.master_addr; }, "node1"},
      {"MASTER_PORT", "29500", [](E e) { return text(e.master_port); }, "29500"},
      {"TORCHELASTIC_USE_AGENT_STORE", "True",
       [](E e) { return e.launcher + text(e.use_agent_store); }, "torchrun1", "RANK=0"},
      {"TORCHELASTIC_RUN_ID", "job", [](E e) { return e.run_id; }, "job"},
      {"TORCHELASTIC_RESTART_COUNT", "2", [](E e) { return text(e.restart_count); }, "2"},
      {"OMPI_MCA_ess_base_jobid", "11", [](E e) { return e.job_id; }, "11"},
      {"PMIX_NAMESPACE", "ns", [](E e) { return e.job_id; }, "ns"},
      {"PMI_JOBID", "j", [](E e) { return e.job_id; }, "j"},
      {"SLURM_JOB_ID", "12", [](E e) { return e.job_id; }, "12.3", "SLURM_STEP_ID=3"},
      {"SLURM_STEP_ID", "3", [](E e) { return e.job_id; }, "12.3", "SLURM_JOB_ID=12"},
  };
  return kRows;
}

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kVariables) {
      const char* value = getenv(name);
      saved_.push_back(value == nullptr ? "\n" : value);
    }
    clear();
  }
  void TearDown() override {
    clear();
    for (size_t i = 0; i < saved_.size(); ++i) {
      if (saved_[i] != "\n") setenv(kVariables[i], saved_[i].c_str(), 1);
    }
  }
  static void clear() {
    for (const char* name : kVariables) unsetenv(name);
  }
  static void set(const std::string& assignment) {
    const size_t equals = assignment.find('=');
    setenv(assignment.substr(0, equals).c_str(), assignment.substr(equals + 1).c_str(), 1);
  }

 private:
  std::vector<std::string> saved_;
};

TEST_F(ConfigTest, EveryVariableReachesItsField) {
  for (const Row& row : rows()) {
    clear();
    if (row.with != nullptr) set(row.with);
    const std::string before = row.field(read_environment());
    EXPECT_NE(before, row.expected) << row.variable;
    setenv(row.variable, row.value, 1);
    const Environment env = read_environment();
    EXPECT_EQ(row.field(env), row.expected) << row.variable;
    EXPECT_EQ(env.problem, "") << row.variable;
  }
}

TEST_F(ConfigTest, EveryVariableHasARowHereAndInTheDocumentation) {
  const std::filesystem::path root = UNISONO_SOURCE_DIR;
  std::ifstream file(root / "docs/environment.md");
  ASSERT_TRUE(file) << root;
  std::stringstream contents;
  contents << file.rdbuf();
  for (const char* name : kVariables) {
    EXPECT_NE(contents.str().find(std::string("`") + name + "`"), std::string::npos) << name;
    bool found = false;
    for (const Row& row : rows()) found |= std::string_view(row.variable) == name;
    EXPECT_TRUE(found) << name;
  }
}

TEST_F(ConfigTest, AMalformedValueIsNamedAsAProblem) {
  const std::pair<const char*, const char*> cases[] = {
      {"UNISONO_TIMEOUT_MS", "x"},
      {"UNISONO_TIMEOUT_MS", "-2"},
      {"UNISONO_TIMEOUT_MS", "12ms"},
      {"UNISONO_TIMEOUT_MS", "0"},
      {"UNISONO_TIMEOUT_MS", "99999999999999999999"},
      {"UNISONO_SLICE_BYTES", "-1"},
      {"UNISONO_REPRODUCIBLE", "yes"},
      {"UNISONO_KERNELS", "sse9"},
      {"UNISONO_LOG_LEVEL", "loud"},
      {"UNISONO_JOB_SECRET_FD", "-1"},
      {"RANK", "-1"},
      {"RANK", "one"},
      {"MASTER_PORT", "65536"},
      {"PMI_RANK", "1.5"},
      {"SLURM_PROCID", " 1"},
      {"OMPI_COMM_WORLD_RANK", "0x1"},
      {"TORCHELASTIC_RESTART_COUNT", "-3"},
  };
  for (const auto& [name, value] : cases) {
    clear();
    setenv(name, value, 1);
    EXPECT_EQ(read_environment().problem.rfind(name, 0), 0u) << name << "=" << value;
  }
}

TEST_F(ConfigTest, AMalformedValueLeavesTheDefault) {
  setenv("UNISONO_LOG_LEVEL", "loud", 1);
  EXPECT_EQ(read_environment().log_level, "warn");
}

// In a process of its own: the log is opened once.
TEST(LogDeathTest, AFileThatCannotBeOpenedIsSaidAndNothingIsLost) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto log = [] {
    setenv("UNISONO_LOG_FILE", "/dev/null/log", 1);
    log_warn("the message itself");
    std::exit(0);
  };
  EXPECT_EXIT(log(), ::testing::ExitedWithCode(0),
              "UNISONO_LOG_FILE: .*/dev/null/log(.|\n)*the message itself");
}

TEST_F(ConfigTest, TheFirstProblemIsKept) {
  setenv("UNISONO_TIMEOUT_MS", "x", 1);
  setenv("MASTER_PORT", "y", 1);
  EXPECT_EQ(read_environment().problem, "UNISONO_TIMEOUT_MS: 'x' is not a number");
}

TEST_F(ConfigTest, AnEmptyVariableCountsAsUnset) {
  for (const char* name : kVariables) setenv(name, "", 1);
  const Environment env = read_environment();
  EXPECT_EQ(env.problem, "");
  EXPECT_EQ(env.launcher, "");
  EXPECT_EQ(env.timeout_ms, -1);
}

TEST_F(ConfigTest, RankAndSizeAreNeverTakenFromDifferentLaunchers) {
  setenv("RANK", "0", 1);
  setenv("SLURM_PROCID", "5", 1);
  setenv("SLURM_NTASKS", "8", 1);
  const Environment env = read_environment();
  EXPECT_EQ(env.rank, 0);
  EXPECT_EQ(env.world_size, -1);
  EXPECT_EQ(env.launcher, "env");
}

TEST_F(ConfigTest, UniRunIsKnownByItsMeetingPoint) {
  setenv("RANK", "0", 1);
  setenv("UNISONO_MEETING", "unix:abc", 1);
  EXPECT_EQ(read_environment().launcher, "uni-run");
}

}  // namespace
}  // namespace unisono
