// UNISONO_PLAN_FILE: a plan from outside runs and is right; one that cannot be trusted stops every
// rank, with the variable's name.
//
// Ranks are processes, as the environment is read once. Each reports by its exit status.
#include <fcntl.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "algorithms/plan_text.h"
#include "algorithms/registry.h"
#include "tests/comm/processes.h"

namespace unisono::testing {
namespace {

class PlanFiles : public ::testing::Test {
 protected:
  PlanFiles() {
    std::string path = ::testing::TempDir() + "unisono-plan-XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    folder_ = path;
  }
  ~PlanFiles() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& text) {
    const auto path = folder_ / std::to_string(++files_);
    std::ofstream(path) << text;
    return path;
  }

 private:
  std::filesystem::path folder_;
  int files_ = 0;
};

std::string plan_text(const std::string& algorithm, PlanRequest request) {
  std::vector<Plan> plans;
  for (request.rank = 0; request.rank < request.ranks; ++request.rank) {
    auto plan = build_plan(algorithm, request);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    if (!plan.ok()) return "";
    plan->algorithm = "mine";
    plans.push_back(*plan);
  }
  return to_plan_text(plans);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

struct Job {
  std::string transport = "shm";
  bool reproducible = false;
  const char* slice_bytes = nullptr;
};
// rank, the communicator (null if it was refused), and creation's result.
using Body = std::function<void(int, uniComm_t, uniResult_t)>;

// One process a rank, with plan file [rank] ("": none).
void run(const std::vector<std::string>& files, const Job& job, const Body& body) {
  std::vector<std::unique_ptr<Pipe>> pipes;
  std::vector<pid_t> children;
  for (size_t r = 0; r < files.size(); r++) pipes.push_back(std::make_unique<Pipe>());
  std::fflush(nullptr);
  for (size_t r = 0; r < files.size(); r++) {
    const pid_t pid = fork();
    if (pid != 0) {
      children.push_back(pid);
      continue;
    }
    alarm(100);
    setenv("UNISONO_PLAN_FILE", files[r].c_str(), 1);
    if (job.slice_bytes != nullptr) setenv("UNISONO_SLICE_BYTES", job.slice_bytes, 1);
    uniUniqueId id;
    if (r == 0) {
      if (uniGetUniqueId(&id) != uniSuccess) _exit(92);
      for (size_t other = 1; other < files.size(); other++) pipes[other]->put(&id, sizeof id);
    } else {
      pipes[r]->get(&id, sizeof id);
    }
    uniConfig_t config = UNI_CONFIG_INITIALIZER;
    config.transports = job.transport.c_str();
    config.timeout_ms = 60'000;
    config.reproducible = job.reproducible ? 1 : 0;
    uniComm_t comm = nullptr;
    const uniResult_t made = uniCommInitRankConfig(&comm, static_cast<int>(files.size()), id,
                                                   static_cast<int>(r), &config);
    body(static_cast<int>(r), made == uniSuccess ? comm : nullptr, made);
    if (made == uniSuccess) uniCommDestroy(comm);
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

std::string last_algorithm(uniComm_t comm) {
  uniCommInfo_t info{};
  info.size = sizeof info;
  EXPECT_EQ(uniCommQuery(comm, &info), uniSuccess);
  return info.last_algorithm;
}

// Element i of rank r is (i % 7) + r: sums are exact in floats.
void expect_sums(uniComm_t comm, int rank, int ranks, size_t count, bool in_place) {
  std::vector<float> send(count), recv(count);
  for (size_t i = 0; i < count; i++) send[i] = static_cast<float>(i % 7) + static_cast<float>(rank);
  float* const to = in_place ? send.data() : recv.data();
  ASSERT_EQ(uniAllReduce(send.data(), to, count, uniFloat32, uniSum, comm, nullptr), uniSuccess)
      << uniGetLastError(nullptr);
  const float ids = static_cast<float>(ranks * (ranks - 1) / 2);
  for (size_t i = 0; i < count; i++)
    ASSERT_EQ(to[i], static_cast<float>(i % 7) * static_cast<float>(ranks) + ids)
        << "element " << i << " of " << count;
}

TEST_F(PlanFiles, AnImportedPlanSumsRight) {
  for (const char* transport : {"shm", "tcp"}) {
    for (const int ranks : {2, 3, 4}) {
      const PlanRequest request{.ranks = ranks, .multicast = false};
      const std::string path = file(plan_text("ring", request));
      const std::vector<std::string> files(static_cast<size_t>(ranks), path);
      run(files, {.transport = transport}, [&](int rank, uniComm_t comm, uniResult_t made) {
        ASSERT_EQ(made, uniSuccess) << uniGetLastError(nullptr);
        for (const size_t count : {0, 1, 1000, 300'000}) {
          expect_sums(comm, rank, ranks, count, false);
          EXPECT_EQ(last_algorithm(comm), "plan file");
          expect_sums(comm, rank, ranks, count, true);
        }
      });
    }
  }
}

// Over the communicator's one-reader and several-reader channels, and on the small path.
TEST_F(PlanFiles, AnImportedPlanMayMulticastInSharedMemory) {
  const std::string path = file(plan_text("direct", {.ranks = 3, .multicast = true}));
  run({path, path, path}, {}, [](int rank, uniComm_t comm, uniResult_t made) {
    ASSERT_EQ(made, uniSuccess) << uniGetLastError(nullptr);
    expect_sums(comm, rank, 3, 10, false);
    expect_sums(comm, rank, 3, 100'000, true);
    EXPECT_EQ(last_algorithm(comm), "plan file");
  });
}

const char* const kBroadcast = R"(unisono-plan 1
algorithm by-hand
collective broadcast
ranks 2
root 1
blocks split 1
message_blocks 1
late no
reproducible no
lane pass
rank 0
buffers 0 1
scratch 0
channel 0 1 0
step 0 recv:0 into output:0+1 length 0+1
rank 1
buffers 1 1
scratch 0
channel 0 1 0
step 0 input:0+1 into output:0+1 send 0 length 0+1
end
)";

TEST_F(PlanFiles, APlanServesOnlyTheCallsThatItStates) {
  const std::string path = file(kBroadcast);
  // The same plan, spelt otherwise: no disagreement.
  const std::string commented = file("# by hand\n" + std::string(kBroadcast));
  run({path, commented}, {}, [](int rank, uniComm_t comm, uniResult_t made) {
    ASSERT_EQ(made, uniSuccess) << uniGetLastError(nullptr);
    for (const int root : {0, 1}) {
      int32_t word = rank == root ? 40 + root : -1;
      ASSERT_EQ(uniBroadcast(&word, &word, 1, uniInt32, root, comm, nullptr), uniSuccess);
      EXPECT_EQ(word, 40 + root);
      EXPECT_EQ(last_algorithm(comm) == "plan file", root == 1) << last_algorithm(comm);
    }
    expect_sums(comm, rank, 2, 50, false);
    EXPECT_NE(last_algorithm(comm), "plan file");
  });
}

TEST_F(PlanFiles, APlanForAnotherNumberOfRanksIsNotUsed) {
  const std::string path = file(plan_text("ring", {.ranks = 4}));
  run({path, path}, {}, [](int rank, uniComm_t comm, uniResult_t made) {
    ASSERT_EQ(made, uniSuccess) << uniGetLastError(nullptr);
    expect_sums(comm, rank, 2, 50, false);
    EXPECT_NE(last_algorithm(comm), "plan file");
  });
}

class PlanFileRefusals : public PlanFiles {
 protected:
  static void expect_refused(const std::vector<std::string>& files, const Job& job,
                             const std::string& words) {
    run(files, job, [&](int rank, uniComm_t, uniResult_t made) {
      const std::string text = uniGetLastError(nullptr);
      EXPECT_EQ(made, uniInvalidArgument) << "rank " << rank << ": " << text;
      EXPECT_NE(text.find("UNISONO_PLAN_FILE"), std::string::npos) << text;
      EXPECT_NE(text.find(words), std::string::npos) << "no '" << words << "' in " << text;
    });
  }
  std::string ring() { return plan_text("ring", {.ranks = 2, .multicast = false}); }
};

TEST_F(PlanFileRefusals, OfAFileThatOneRankCannotRead) {
  const std::string path = file(ring());
  expect_refused({path, path + ".not-there"}, {}, "(on rank 1)");
  expect_refused({path + ".not-there"}, {}, "No such file");  // alone
}

TEST_F(PlanFileRefusals, OfWhatIsNoRegularFile) {
  expect_refused({::testing::TempDir(), ::testing::TempDir()}, {}, "not a regular file");
}

TEST_F(PlanFileRefusals, OfAMalformedFile) {
  const std::string path = file(replaced(ring(), "late yes", "late maybe"));
  expect_refused({path, path}, {}, "line 8: late: 'maybe' is neither");
}

TEST_F(PlanFileRefusals, OfAPlanThatIsNotProved) {
  const std::string path = file(replaced(kBroadcast, "send 0 ", ""));
  expect_refused({path, path}, {}, "rule 1");
}

TEST_F(PlanFileRefusals, OfDifferentPlans) {
  const std::string one = file(ring());
  const std::string other = file(plan_text("recursive_doubling", {.ranks = 2, .multicast = false}));
  expect_refused({one, other}, {}, "all ranks must have the same");
}

TEST_F(PlanFileRefusals, OfAPlanThatOneRankHasNot) {
  expect_refused({file(ring()), ""}, {}, "rank 1 has no plan");
}

TEST_F(PlanFileRefusals, OfSeveralReadersWhereNoTransportHasThem) {
  const std::string path = file(plan_text("direct", {.ranks = 3, .multicast = true}));
  expect_refused({path, path, path}, {.transport = "tcp"}, "several readers");
}

TEST_F(PlanFileRefusals, OfAPlanThatIsNotReproducibleWhereThatIsAskedFor) {
  const std::string text = plan_text("ring", {.ranks = 3, .multicast = false});
  ASSERT_NE(text.find("reproducible no"), std::string::npos);
  const std::string path = file(text);
  expect_refused({path, path, path}, {.reproducible = true}, "not reproducible");
}

TEST_F(PlanFileRefusals, OfMessagesThatDoNotFitASlice) {
  const std::string path = file(replaced(ring(), "message_blocks 1", "message_blocks 16"));
  expect_refused({path, path}, {.slice_bytes = "64"}, "do not fit slices of 64 bytes");
}

}  // namespace
}  // namespace unisono::testing
