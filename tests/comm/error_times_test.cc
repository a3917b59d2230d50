// From a cause to the last rank's error, with ranks as processes: each kind of failure ends on
// every rank in an error that names the operation. How long it took is printed, never asserted;
// UNISONO_TEST_FULL=1 prints the table of docs/failures.md.
#include <algorithm>
#include <ctime>

#include "tests/comm/collective_case.h"
#include "tests/comm/processes.h"

namespace unisono::testing {
namespace {

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

enum class Event { kCall, kKill, kDeadline, kAbort, kPlan, kRecv };

struct Cause {
  const char* name;
  Event event;
  Case good, odd;        // kCall, kRecv: what all ranks but the last call, and the last
  uniResult_t result;    // on every rank
  const char* words[2];  // in every rank's message
};

constexpr int64_t kDeadlineMs = 1500;

std::vector<Cause> causes() {
  const Case sum{Kind::kAllReduce, uniFloat32, uniSum, 1000, 0, false};
  const auto with = [&sum](auto member, auto value) {
    Case c = sum;
    c.*member = value;
    return c;
  };
  Case reduce = with(&Case::kind, Kind::kReduce), to_another = reduce;
  to_another.root = 1;
  const uniResult_t odd = uniMismatch;
  return {
      {"kill -9, its forked child lives",
       Event::kKill,
       sum,
       sum,
       uniRemoteError,
       {"all_reduce", "died"}},
      {"kind", Event::kCall, sum, with(&Case::kind, Kind::kAllGather), odd, {"#2", "all_gather"}},
      {"type", Event::kCall, sum, with(&Case::type, uniInt32), odd, {"#2", "int32"}},
      {"operation", Event::kCall, sum, with(&Case::op, uniMax), odd, {"#2", "max"}},
      {"count", Event::kCall, sum, with(&Case::count, size_t{1001}), odd, {"#2", "count 1001"}},
      {"zero count on one rank",
       Event::kCall,
       sum,
       with(&Case::count, size_t{0}),
       odd,
       {"#2", "count 0"}},
      {"root", Event::kCall, reduce, to_another, odd, {"#2", "root 1"}},
      {"plan (algorithm of one rank)",
       Event::kPlan,
       sum,
       sum,
       uniInvalidArgument,
       {"algorithm", "ring"}},
      {"recv against a collective", Event::kRecv, sum, sum, odd, {"#2", "recv from"}},
      {"deadline, one rank never comes",
       Event::kDeadline,
       sum,
       sum,
       uniTimeout,
       {"#2", "timed out"}},
      {"abort", Event::kAbort, sum, sum, uniAborted, {"all_reduce", "uniCommAbort"}},
  };
}

// One rank's part of a run, as it passes through a pipe.
struct Record {
  int rank = 0;
  int result = uniSuccess;
  int64_t cause_ns = 0, error_ns = 0;
  char text[400] = {};
};
static_assert(sizeof(Record) < 512, "so small a record is written to a pipe as a whole");

uniResult_t act(const Cause& cause, int rank, int ranks, uniComm_t comm, Record* record) {
  const bool odd = rank == ranks - 1;
  CaseRun run(odd ? cause.odd : cause.good, rank, ranks);
  if (cause.event == Event::kDeadline) UNI_OK(uniCommSetTimeout(comm, kDeadlineMs));
  record->cause_ns = now_ns();
  switch (cause.event) {
    case Event::kRecv:
      if (!odd) return run.call(comm, nullptr);
      return uniRecv(run.recv(), 1000, uniInt8, 0, comm, nullptr);
    case Event::kAbort:
      if (!odd) return run.call(comm, nullptr);
      UNI_OK(uniCommAbort(comm));
      return run.call(comm, nullptr);
    case Event::kPlan: {
      uniConfig_t config = UNI_CONFIG_INITIALIZER;
      if (odd) config.algorithm = "ring";
      uniComm_t child = nullptr;
      return uniCommSplit(comm, 0, rank, &child, &config);
    }
    case Event::kDeadline:
      record->cause_ns += kDeadlineMs * 1'000'000;
      return run.call(comm, nullptr);
    case Event::kCall:
    case Event::kKill:
      return run.call(comm, nullptr);
  }
  return uniInternalError;
}

// The rank that is missed: it is killed, or does not come before the others have their errors.
bool stays_away(const Cause& cause, int rank, int ranks) {
  return rank == ranks - 1 && (cause.event == Event::kKill || cause.event == Event::kDeadline);
}

struct Outcome {
  double ms = 0;  // cause to the last error
  std::string text;
};

Outcome run_once(const Cause& cause, const std::string& transport, int ranks) {
  Pipe met, go, ready, records, done;
  Processes processes(ranks, transport, [&](int rank, uniComm_t comm) {
    UNI_OK(uniBarrier(comm, nullptr));
    met.tell();
    go.hear();  // when all have left the barrier: it must not hear of what follows
    if (stays_away(cause, rank, ranks)) {
      if (cause.event == Event::kKill && fork() == 0) {
        ready.tell();
        done.hear();
        _exit(0);
      }
      if (cause.event == Event::kKill) pause();
      done.hear();
      return;
    }
    ready.tell();
    Record record;
    record.rank = rank;
    uniResult_t result = act(cause, rank, ranks, comm, &record);
    // What only sends may be done with it before anybody knows better.
    if (result == uniSuccess) result = uniBarrier(comm, nullptr);
    record.error_ns = now_ns();
    record.result = result;
    std::snprintf(record.text, sizeof record.text, "%s", uniGetLastError(nullptr));
    records.put(&record, sizeof record);
    done.hear();  // nobody's leaving is another's error
  });
  for (int r = 0; r < ranks; r++) met.hear();
  for (int r = 0; r < ranks; r++) go.tell();
  const int missing = stays_away(cause, ranks - 1, ranks) ? 1 : 0;
  for (int r = 0; r < ranks - (cause.event == Event::kDeadline ? 1 : 0); r++) ready.hear();
  int64_t cause_ns = cause.event == Event::kDeadline ? INT64_MAX : 0, last_ns = 0;
  if (cause.event == Event::kKill) {
    cause_ns = now_ns();
    processes.kill_now(ranks - 1);
  }
  Outcome outcome;
  for (int r = 0; r < ranks - missing; r++) {
    Record record;
    records.get(&record, sizeof record);
    const std::string text = record.text;
    EXPECT_EQ(record.result, cause.result) << "rank " << record.rank << ": " << text;
    EXPECT_EQ(text.find("reduce: all_reduce #"), std::string::npos) << "named twice: " << text;
    EXPECT_EQ(text.find("reduce: reduce #"), std::string::npos) << "named twice: " << text;
    for (const char* word : cause.words) {
      EXPECT_NE(text.find(word), std::string::npos) << "no '" << word << "' in: " << text;
    }
    // The last to come makes the call wrong; the first deadline to pass is the job's.
    if (cause.event == Event::kDeadline) cause_ns = std::min(cause_ns, record.cause_ns);
    const bool told = cause.event == Event::kAbort
                          ? record.rank == ranks - 1
                          : cause.event != Event::kKill && cause.event != Event::kDeadline;
    if (told) cause_ns = std::max(cause_ns, record.cause_ns);
    last_ns = std::max(last_ns, record.error_ns);
    if (record.rank == 0) outcome.text = text;
  }
  for (int r = 0; r < ranks; r++) done.tell();  // to the child of a killed one, too
  for (int r = 0; r < ranks; r++) {
    const bool killed = cause.event == Event::kKill && r == ranks - 1;
    EXPECT_EQ(processes.wait_for(r), killed ? 1000 + SIGKILL : 0) << "rank " << r;
  }
  outcome.ms = static_cast<double>(last_ns - cause_ns) / 1e6;
  return outcome;
}

class ErrorTime : public ::testing::TestWithParam<size_t> {};

TEST_P(ErrorTime, EndsOnEveryRankInAnErrorThatNamesTheOperation) {
  const Cause cause = causes()[GetParam()];
  const std::vector<int> sizes = full() ? std::vector<int>{2, 4, 8} : std::vector<int>{3};
  const int times = full() ? 5 : 1;
  std::string row = std::string("| ") + cause.name + " |", text;
  for (const std::string transport : {"shm", "tcp"}) {
    for (const int ranks : sizes) {
      double worst = 0;
      for (int i = 0; i < times; i++) {
        const Outcome outcome = run_once(cause, transport, ranks);
        worst = std::max(worst, outcome.ms);
        text = outcome.text;
      }
      char cell[32];
      std::snprintf(cell, sizeof cell, " %.*f |", worst < 10 ? 1 : 0, worst);
      row += cell;
    }
  }
  std::printf("%s\n  rank 0: %s\n", row.c_str(), text.c_str());
}

INSTANTIATE_TEST_SUITE_P(All, ErrorTime, ::testing::Range(size_t{0}, causes().size()),
                         [](const auto& one) {
                           std::string name = causes()[one.param].name;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

}  // namespace
}  // namespace unisono::testing
