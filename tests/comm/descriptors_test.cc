// One process of several has too few file descriptors. By itself: the ranks are forked before this
// process has used the library.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/comm/processes.h"
#include "unisono/unisono.h"

namespace unisono::testing {
namespace {

// One of four processes can open so many descriptors more than it has. Its message, and the results
// of all.
struct Shortage {
  uniResult_t results[4] = {uniSuccess, uniSuccess, uniSuccess, uniSuccess};
  std::string text;
};
struct Record {
  int rank = 0;
  uniResult_t result = uniSuccess;
  char text[400] = {};
};

// The limit that leaves so many numbers free below it.
rlim_t limit_for(int more) {
  std::set<rlim_t> used;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    used.insert(std::stoul(entry.path().filename().string()));
  }
  rlim_t limit = 0;
  for (int free = 0; free < more; ++limit) free += used.count(limit) == 0 ? 1 : 0;
  return limit;
}

void run_short_rank(int rank, const uniUniqueId& id, int more, Record* record) {
  record->rank = rank;
  if (rank == 1) {
    const rlimit few{limit_for(more), limit_for(more)};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  uniConfig_t config = UNI_CONFIG_INITIALIZER;
  config.timeout_ms = 60'000;
  uniComm_t comm = nullptr;
  record->result = uniCommInitRankConfig(&comm, 4, id, rank, &config);
  // Both ways between all, by shared memory and, where that was not to be had, by TCP.
  float values[64] = {}, results[64] = {};
  for (int i = 0; i < 3 && record->result == uniSuccess; i++) {
    record->result = uniAllToAll(values, results, 16, uniFloat32, comm, nullptr);
    if (record->result != uniSuccess) break;
    record->result = uniAllReduce(values, results, 64, uniFloat32, uniSum, comm, nullptr);
  }
  std::snprintf(record->text, sizeof record->text, "%s", uniGetLastError(nullptr));
}

Shortage run_with(int more) {
  Pipe ids, records, done;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 4; rank++) {
    const pid_t pid = fork();
    pids.push_back(pid);
    if (pid != 0) continue;
    alarm(100);
    uniUniqueId id;
    if (rank == 0) {
      if (uniGetUniqueId(&id) != uniSuccess) _exit(92);
      for (int r = 1; r < 4; r++) ids.put(&id, sizeof id);
    } else {
      ids.get(&id, sizeof id);
    }
    Record record;
    run_short_rank(rank, id, more, &record);
    records.put(&record, sizeof record);
    done.hear();  // nobody's end is another's error
    _exit(0);
  }
  Shortage outcome;
  for (int i = 0; i < 4; i++) {
    Record record;
    records.get(&record, sizeof record);
    outcome.results[record.rank] = record.result;
    if (record.rank == 1) outcome.text = record.text;
    // It never came to the meeting: nobody can know but who started it.
    if (record.rank == 1 && record.result != uniSuccess &&
        outcome.text.find("no link") == std::string::npos) {
      break;
    }
  }
  for (const pid_t pid : pids) {
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, nullptr, 0);
  }
  return outcome;
}

TEST(Descriptors, TooFewOnOneRankAreAnErrorWithTheReasonOnAllLongBeforeTheDeadline) {
  int told = 0, worked = 0;
  for (int more = 3; more < 60 && worked == 0; more += 3) {
    const Shortage outcome = run_with(more);
    SCOPED_TRACE(std::to_string(more) + " more: " + outcome.text);
    if (outcome.results[1] == uniSuccess) {
      worked++;
    } else {
      EXPECT_NE(outcome.text.find("Too many open files"), std::string::npos);
      told += outcome.text.find("no link") != std::string::npos ? 1 : 0;
    }
    for (const uniResult_t result : outcome.results) EXPECT_NE(result, uniTimeout);
  }
  EXPECT_EQ(worked, 1);
  EXPECT_GE(told, 1);
}

}  // namespace
}  // namespace unisono::testing
