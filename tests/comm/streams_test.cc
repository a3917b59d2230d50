// Host streams and events: asynchronous, in order, driven by the library; host functions once each,
// also after an abort.
#include <condition_variable>
#include <mutex>

#include "tests/comm/collective_case.h"

namespace unisono::testing {
namespace {

// A gate that a host function can be held at.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

struct Log {
  std::mutex mutex;
  std::vector<std::pair<int, uniResult_t>> entries;
};
struct Entry {
  Log* log;
  int id;
  Gate* gate = nullptr;
};
void note(void* arg, uniResult_t status) {
  auto* entry = static_cast<Entry*>(arg);
  if (entry->gate != nullptr) entry->gate->pass();
  const std::lock_guard lock(entry->log->mutex);
  entry->log->entries.emplace_back(entry->id, status);
}

class Streams : public ::testing::TestWithParam<std::string> {};

TEST_P(Streams, RunWorkInOrderAndGiveTheReferencesResults) {
  const Ranks world(3, {GetParam()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    uniStream_t stream = nullptr;
    UNI_OK(uniStreamCreate(&stream));
    std::vector<CaseRun> runs;
    for (const Kind kind : {Kind::kAllReduce, Kind::kBroadcast, Kind::kAllGather,
                            Kind::kReduceScatter, Kind::kAllToAll}) {
      for (const size_t count : {size_t{5}, size_t{30'001}}) {
        runs.emplace_back(Case{kind, uniFloat32, uniSum, count, 1, false}, rank, 3);
      }
    }
    for (CaseRun& run : runs) UNI_OK(run.call(comm, stream));
    UNI_OK(uniStreamSynchronize(stream));
    for (CaseRun& run : runs) EXPECT_EQ(run.wrong(), "");
    EXPECT_EQ(uniStreamQuery(stream), uniSuccess);
    UNI_OK(uniStreamDestroy(stream));
  });
}

TEST_P(Streams, KeepIssueOrderOnACommunicatorWhateverTheStream) {
  const Ranks world(2, {GetParam()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    uniStream_t a = nullptr, b = nullptr;
    UNI_OK(uniStreamCreate(&a));
    UNI_OK(uniStreamCreate(&b));
    int64_t value = rank + 1;  // each all-reduce doubles or so: the result shows the order
    for (int i = 0; i < 20; i++)
      UNI_OK(uniAllReduce(&value, &value, 1, uniInt64, uniSum, comm, i % 3 == 0 ? a : b));
    UNI_OK(uniAllReduce(&value, &value, 1, uniInt64, uniSum, comm,
                        nullptr));  // blocking, behind all of them
    EXPECT_EQ(value, 3LL << 20);
    UNI_OK(uniStreamDestroy(a));
    UNI_OK(uniStreamDestroy(b));
  });
}

TEST_P(Streams, RunHostFunctionsOnceInOrderWithTheStatusSoFar) {
  const Ranks world(2, {GetParam()});
  ASSERT_TRUE(world.ok());
  world.run([&](int, uniComm_t comm) {
    Log log;
    Entry first{&log, 1}, second{&log, 2};
    uniStream_t stream = nullptr;
    UNI_OK(uniStreamCreate(&stream));
    float value = 1;
    UNI_OK(uniAllReduce(&value, &value, 1, uniFloat32, uniSum, comm, stream));
    UNI_OK(uniStreamLaunchHostFunc(stream, note, &first));
    UNI_OK(uniAllReduce(&value, &value, 1, uniFloat32, uniSum, comm, stream));
    UNI_OK(uniStreamLaunchHostFunc(stream, note, &second));
    UNI_OK(uniStreamSynchronize(stream));
    EXPECT_EQ(log.entries,
              (std::vector<std::pair<int, uniResult_t>>{{1, uniSuccess}, {2, uniSuccess}}));
    EXPECT_EQ(value, 4);
    UNI_OK(uniStreamDestroy(stream));
  });
}

TEST(Stream, IsBusyWhileAHostFunctionIsHeldAndEventsTellProgress) {
  Gate gate;
  Log log;
  Entry held{&log, 1, &gate};
  uniStream_t stream = nullptr, other = nullptr;
  uniEvent_t before = nullptr, after = nullptr;
  UNI_OK(uniStreamCreate(&stream));
  UNI_OK(uniStreamCreate(&other));
  UNI_OK(uniEventCreate(&before));
  UNI_OK(uniEventCreate(&after));
  EXPECT_EQ(uniEventQuery(after), uniSuccess) << "an event never recorded counts as done";
  UNI_OK(uniEventRecord(before, stream));
  UNI_OK(uniStreamLaunchHostFunc(stream, note, &held));
  UNI_OK(uniEventRecord(after, stream));
  UNI_OK(uniEventSynchronize(before, -1));
  EXPECT_EQ(uniStreamQuery(stream), uniInProgress);
  EXPECT_EQ(uniEventQuery(after), uniInProgress);
  EXPECT_EQ(uniEventSynchronize(after, 1), uniTimeout);
  // Work of another stream waits for the event.
  Entry follower{&log, 2};
  UNI_OK(uniStreamWaitEvent(other, after));
  UNI_OK(uniStreamLaunchHostFunc(other, note, &follower));
  gate.open();
  UNI_OK(uniStreamSynchronize(other));
  EXPECT_EQ(log.entries,
            (std::vector<std::pair<int, uniResult_t>>{{1, uniSuccess}, {2, uniSuccess}}));
  EXPECT_EQ(uniEventQuery(after), uniSuccess);
  UNI_OK(uniStreamDestroy(stream));
  UNI_OK(uniStreamDestroy(other));
  UNI_OK(uniEventDestroy(before));
  UNI_OK(uniEventDestroy(after));
}

struct Reissue {
  uniStream_t stream;
  uniComm_t comm;
  float value = 1;
  uniResult_t issued = uniInternalError, waited = uniSuccess;
};
void reissue(void* arg, uniResult_t) {
  auto* r = static_cast<Reissue*>(arg);
  r->issued = uniAllReduce(&r->value, &r->value, 1, uniFloat32, uniSum, r->comm, r->stream);
  r->waited = uniStreamSynchronize(r->stream);
}

TEST_P(Streams, HostFunctionsMayIssueWorkButNotWaitForTheirOwnStream) {
  const Ranks world(2, {GetParam()});
  ASSERT_TRUE(world.ok());
  world.run([&](int, uniComm_t comm) {
    Reissue r{nullptr, comm};
    uniEvent_t done = nullptr;
    UNI_OK(uniStreamCreate(&r.stream));
    UNI_OK(uniEventCreate(&done));
    UNI_OK(uniBarrier(comm, r.stream));
    UNI_OK(uniStreamLaunchHostFunc(r.stream, reissue, &r));
    UNI_OK(uniEventRecord(done, r.stream));
    UNI_OK(uniEventSynchronize(done, -1));
    UNI_OK(uniStreamSynchronize(r.stream));
    EXPECT_EQ(r.issued, uniSuccess);
    EXPECT_EQ(r.waited, uniInvalidUsage);
    EXPECT_EQ(r.value, 2);
    UNI_OK(uniEventDestroy(done));
    UNI_OK(uniStreamDestroy(r.stream));
  });
}

TEST_P(Streams, CallHostFunctionsExactlyOnceAlsoAfterAnAbort) {
  // No thread drives rank 1: a simulated world is told not to wait for one.
  const Ranks world(2, {GetParam() == "sim" ? "sim:patience_ms=20" : GetParam()});
  ASSERT_TRUE(world.ok());
  Log log;
  Entry entry{&log, 7};
  uniStream_t stream = nullptr;
  UNI_OK(uniStreamCreate(&stream));
  float value = 1;
  UNI_OK(uniCommAbort(world[0]));
  (void)uniAllReduce(&value, &value, 1, uniFloat32, uniSum, world[0], stream);
  UNI_OK(uniStreamLaunchHostFunc(stream, note, &entry));
  EXPECT_EQ(uniStreamSynchronize(stream), uniAborted);
  EXPECT_EQ(log.entries, (std::vector<std::pair<int, uniResult_t>>{{7, uniAborted}}));
  EXPECT_EQ(uniStreamSynchronize(stream), uniSuccess) << "an error is returned once";
  UNI_OK(uniStreamDestroy(stream));
}

std::string name(const ::testing::TestParamInfo<std::string>& tested) {
  return tested.param;
}

INSTANTIATE_TEST_SUITE_P(Over, Streams, ::testing::Values("shm", "tcp", "sim"), name);

}  // namespace
}  // namespace unisono::testing
