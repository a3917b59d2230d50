// What fails in NCCL or CUDA, on one rank, is an error of this library on all of them; nothing
// hangs and nothing is left.
#include "tests/nccl/harness.h"

namespace unisono::testing {
namespace {

using Failures = OnDouble;

constexpr int kSystem = 2, kInternal = 3, kRemote = 6, kIllegalAddress = 700;

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

// A call site: the nth call of a function of the table, by any rank, while the program below runs.
struct Site {
  const char* call;
  int nth, code;
};
void PrintTo(const Site& site, std::ostream* out) {
  *out << site.call << " " << site.nth;
}

// What three ranks do, from the start to the end; the first error of each is kept.
class Program {
 public:
  static constexpr int kRanks = 3;
  void run() {
    uniUniqueId id{};
    UNI_OK(uniGetUniqueId(&id));
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; r++) {
      threads.emplace_back([&, r] {
        EXPECT_EQ(nccl::cudaSetDevice(r), nccl::kCudaSuccess);
        rank(id, r);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const std::string& error(int r) const { return errors_[static_cast<size_t>(r)]; }
  uniResult_t result(int r) const { return results_[static_cast<size_t>(r)]; }

 private:
  void note(int r, uniResult_t result) {
    const auto i = static_cast<size_t>(r);
    if (result == uniSuccess || results_[i] != uniSuccess) return;
    results_[i] = result;
    errors_[i] = uniGetLastError(nullptr);
  }

  void calls(int r, uniComm_t comm, void* buffer, uniStream_t stream) {
    const float scalar = 2;
    auto* const data = static_cast<float*>(buffer);
    void* handle = nullptr;
    uniRedOp_t op = uniSum;
    const auto all_well = [&](uniResult_t result) {
      note(r, result);
      return result == uniSuccess;
    };
    const int next = (r + 1) % kRanks, before = (r + 2) % kRanks;
    uniComm_t child = nullptr;
    (void)(all_well(uniCommRegister(comm, data, 64, &handle)) &&
           all_well(uniCommDeregister(comm, handle)) &&
           all_well(uniRedOpCreatePreMulSum(&op, &scalar, uniFloat32, comm)) &&
           all_well(uniAllReduce(data, data, 2, uniFloat32, op, comm, nullptr)) &&
           all_well(uniReduce(data, data, 2, uniFloat32, uniSum, 1, comm, stream)) &&
           all_well(uniBroadcast(data, data, 2, uniFloat32, 1, comm, stream)) &&
           all_well(uniAllGather(data, data + 4, 2, uniFloat32, comm, stream)) &&
           all_well(uniReduceScatter(data, data + 8, 2, uniFloat32, uniMax, comm, stream)) &&
           all_well(uniGather(data, data + 4, 2, uniFloat32, 0, comm, stream)) &&
           all_well(uniScatter(data + 4, data, 2, uniFloat32, 0, comm, stream)) &&
           all_well(uniAllToAll(data, data + 8, 2, uniFloat32, comm, stream)) &&
           all_well(uniGroupStart()) &&
           all_well(uniSend(data, 2, uniFloat32, next, comm, stream)) &&
           all_well(uniRecv(data + 8, 2, uniFloat32, before, comm, stream)) &&
           all_well(uniGroupEnd()) && all_well(uniStreamSynchronize(stream)) &&
           all_well(uniRedOpDestroy(op, comm)) &&
           all_well(uniCommSplit(comm, 0, 0, &child, nullptr)) &&
           all_well(uniBarrier(child, nullptr)) && all_well(uniCommFinalize(child)) &&
           all_well(uniBarrier(comm, nullptr)));
    note(r, uniCommDestroy(child));
  }

  void rank(const uniUniqueId& id, int r) {
    const uniConfig_t config = device_config();
    uniComm_t comm = nullptr;
    uniStream_t stream = nullptr;
    void* buffer = nullptr;
    nccl::Stream* cuda = nullptr;
    note(r, uniCommInitRankConfig(&comm, kRanks, id, r, &config));
    if (comm == nullptr) return;
    if (nccl::cudaMalloc(&buffer, 64) == nccl::kCudaSuccess &&
        nccl::cudaStreamCreateWithFlags(&cuda, 0) == nccl::kCudaSuccess) {
      note(r, uniStreamWrapCuda(&stream, cuda));
      if (stream != nullptr) calls(r, comm, buffer, stream);
    }
    note(r, uniCommDestroy(comm));
    (void)uniStreamDestroy(stream);
    if (cuda != nullptr) (void)nccl::cudaStreamDestroy(cuda);
    if (buffer != nullptr) (void)nccl::cudaFree(buffer);
  }

  uniResult_t results_[kRanks] = {};
  std::string errors_[kRanks];
};

TEST_F(Failures, AreNoneInTheProgramThatTheOthersBreak) {
  Program program;
  program.run();
  for (int r = 0; r < Program::kRanks; r++) {
    EXPECT_EQ(program.result(r), uniSuccess) << program.error(r);
  }
  for (const char* call : {"ncclGetUniqueId",
                           "ncclCommInitRankConfig",
                           "ncclCommSplit",
                           "ncclCommFinalize",
                           "ncclCommDestroy",
                           "ncclCommGetAsyncError",
                           "ncclRedOpCreatePreMulSum",
                           "ncclRedOpDestroy",
                           "ncclCommRegister",
                           "ncclCommDeregister",
                           "ncclAllReduce",
                           "ncclReduce",
                           "ncclBroadcast",
                           "ncclAllGather",
                           "ncclReduceScatter",
                           "ncclGather",
                           "ncclScatter",
                           "ncclAlltoAll",
                           "ncclSend",
                           "ncclRecv",
                           "ncclGroupStart",
                           "ncclGroupEnd"}) {
    EXPECT_GT(nccl::nccl_double_calls(call), 0) << call;
  }
}

class FailuresOf : public OnDouble, public ::testing::WithParamInterface<Site> {};

TEST_P(FailuresOf, AnyCallAreAnErrorOnAllRanks) {
  const Site site = GetParam();
  nccl::nccl_double_fail(site.call, site.nth, site.code);
  Program program;
  program.run();
  bool named = false;
  for (int r = 0; r < Program::kRanks; r++) {
    EXPECT_NE(program.result(r), uniSuccess) << "rank " << r;
    named = named || says(program.error(r), site.call) ||
            (std::string(site.call) == "async" && says(program.error(r), "NCCL"));
  }
  EXPECT_TRUE(named) << program.error(0) << '\n' << program.error(1) << '\n' << program.error(2);
}

constexpr Site kSites[] = {
    {"cudaGetDeviceCount", 2, kIllegalAddress},
    {"cudaGetDevice", 2, kIllegalAddress},
    {"cudaGetDevice", 9, kIllegalAddress},
    {"cudaMalloc", 2, kIllegalAddress},
    {"cudaStreamCreateWithFlags", 1, kIllegalAddress},
    {"cudaStreamIsCapturing", 2, kIllegalAddress},
    {"cudaEventCreateWithFlags", 2, kIllegalAddress},
    {"cudaEventRecord", 2, kIllegalAddress},
    {"cudaEventQuery", 2, kIllegalAddress},
    {"ncclGetUniqueId", 1, kSystem},
    {"ncclCommInitRankConfig", 2, kInternal},
    {"ncclCommGetAsyncError", 2, kInternal},
    {"ncclCommGetAsyncError", 40, kInternal},
    {"async", 1, kRemote},
    {"async", 30, kRemote},
    {"ncclRedOpCreatePreMulSum", 2, kInternal},
    {"ncclCommRegister", 3, kInternal},
    {"ncclCommDeregister", 1, kInternal},
    {"ncclAllReduce", 2, kInternal},
    {"ncclReduce", 3, kInternal},
    {"ncclBroadcast", 1, kInternal},
    {"ncclAllGather", 2, kInternal},
    {"ncclReduceScatter", 2, kInternal},
    {"ncclGather", 2, kInternal},
    {"ncclScatter", 2, kInternal},
    {"ncclAlltoAll", 2, kInternal},
    {"ncclSend", 2, kInternal},
    {"ncclRecv", 2, kInternal},
    {"ncclGroupStart", 2, kInternal},
    {"ncclGroupEnd", 2, kSystem},
    {"ncclRedOpDestroy", 1, kInternal},
    {"ncclCommSplit", 2, kInternal},
};
std::string site_name(const ::testing::TestParamInfo<Site>& info) {
  return std::string(info.param.call) + "_" + std::to_string(info.param.nth);
}
INSTANTIATE_TEST_SUITE_P(, FailuresOf, ::testing::ValuesIn(kSites), site_name);

// At the very end a rank may be through already: these are errors where they happen.
TEST_F(Failures, OfTheEndAreErrorsOfFinalizeAndDestroy) {
  for (const char* call : {"ncclCommFinalize", "ncclCommDestroy"}) {
    DeviceRanks world(1);
    ASSERT_TRUE(world.ok()) << world.error();
    nccl::nccl_double_fail(call, 1, kInternal);
    EXPECT_EQ(world.destroy(), uniInternalError);
    EXPECT_TRUE(says(uniGetLastError(nullptr), call)) << uniGetLastError(nullptr);
  }
}

TEST_F(Failures, OfAbortItselfLeaveTheFirstErrorStanding) {
  const DeviceRanks world(2);
  ASSERT_TRUE(world.ok()) << world.error();
  nccl::nccl_double_fail("ncclCommAbort", 1, kInternal);
  UNI_OK(uniCommAbort(world[0]));
  world.run([](int, uniComm_t comm) { EXPECT_EQ(uniBarrier(comm, nullptr), uniAborted); });
}

TEST_F(Failures, AbortFreesRanksThatWaitOnTheDevice) {
  const DeviceRanks world(3);
  ASSERT_TRUE(world.ok()) << world.error();
  std::atomic<int> waiting{0};
  world.run([&](int rank, uniComm_t comm) {
    const Device<float> buffer({1, 2});
    const UserStream stream;
    if (rank == 2) {
      while (waiting < 2) std::this_thread::yield();
      UNI_OK(uniCommAbort(comm));
      return;
    }
    // Rank 2 never comes.
    EXPECT_EQ(uniAllReduce(buffer.get(), buffer.get(), 2, uniFloat32, uniSum, comm, stream.stream),
              uniSuccess);
    EXPECT_EQ(uniStreamQuery(stream.stream), uniInProgress);
    waiting++;
    EXPECT_EQ(uniStreamSynchronize(stream.stream), uniAborted);
    EXPECT_TRUE(says(uniGetLastError(nullptr), "all_reduce #1")) << uniGetLastError(nullptr);
    uniResult_t state = uniSuccess;
    UNI_OK(uniCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, uniAborted);
    EXPECT_EQ(uniBarrier(comm, stream.stream), uniAborted);
  });
}

TEST_F(Failures, OfARankToComeAreATimeoutThatNamesOperationAndSequence) {
  const DeviceRanks world(3, {1'500});
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    UNI_OK(uniBarrier(comm, nullptr));
    if (rank == 2) return;
    const Device<float> buffer({1, 2});
    EXPECT_EQ(uniAllReduce(buffer.get(), buffer.get(), 2, uniFloat32, uniSum, comm, nullptr),
              uniTimeout);
    const std::string error = uniGetLastError(nullptr);
    EXPECT_TRUE(says(error, "all_reduce #2 (float32, sum, count 2, nccl) timed out after 1500 ms"))
        << error;
    EXPECT_TRUE(says(error, rank == 0 ? "known to wait in it: 1" : "known to wait in it: 0") ||
                says(error, "rank "))
        << error;
  });
}

TEST_F(Failures, OfASendWithoutItsRecvAreATimeoutOnBothSides) {
  const DeviceRanks world(2, {300});
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    const Device<float> buffer({1, 2});
    const UserStream stream;
    if (rank == 0) {
      UNI_OK(uniSend(buffer.get(), 2, uniFloat32, 1, comm, stream.stream));
      EXPECT_EQ(uniStreamSynchronize(stream.stream), uniTimeout);
      EXPECT_TRUE(says(uniGetLastError(nullptr), "send to rank 1")) << uniGetLastError(nullptr);
    }
  });
  EXPECT_EQ(uniBarrier(world[1], nullptr), uniTimeout);
}

TEST_F(Failures, OfRanksThatIssueDifferentCallsNameBothSides) {
  const DeviceRanks world(2);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    const Device<float> buffer({1, 2, 3});
    const size_t count = rank == 0 ? 2 : 3;
    EXPECT_EQ(uniAllReduce(buffer.get(), buffer.get(), count, uniFloat32, uniSum, comm, nullptr),
              uniMismatch);
    const std::string error = uniGetLastError(nullptr);
    EXPECT_TRUE(says(error, "count 2") && says(error, "count 3")) << error;
  });
}

TEST_F(Failures, OfARankThatLeftAreNamedBeforeTheDeadline) {
  const DeviceRanks world(2);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    if (rank == 1) {
      UNI_OK(uniCommFinalize(comm));
      return;
    }
    const Device<float> buffer({1, 2});
    EXPECT_EQ(uniAllReduce(buffer.get(), buffer.get(), 2, uniFloat32, uniSum, comm, nullptr),
              uniRemoteError);
    EXPECT_TRUE(says(uniGetLastError(nullptr), "rank 1")) << uniGetLastError(nullptr);
  });
}

TEST_F(Failures, AreNotSeenInALongKernelBeforeACall) {
  const DeviceRanks world(1, {50});
  ASSERT_TRUE(world.ok()) << world.error();
  const Device<float> buffer({1});
  const UserStream stream;
  nccl::nccl_double_hold(stream.cuda);
  UNI_OK(uniAllReduce(buffer.get(), buffer.get(), 1, uniFloat32, uniSum, world[0], stream.stream));
  nccl::nccl_double_await_calls("cudaEventQuery", 60);  // some 150 ms of the watcher's looks
  nccl::nccl_double_open();
  UNI_OK(uniStreamSynchronize(stream.stream));
}

TEST_F(Failures, AreNotLookedForInWorkThatIsCapturedIntoAGraph) {
  const DeviceRanks world(1);
  ASSERT_TRUE(world.ok()) << world.error();
  const Device<float> buffer({1});
  const UserStream stream;
  nccl::nccl_double_capture(stream.cuda, 1);
  UNI_OK(uniAllReduce(buffer.get(), buffer.get(), 1, uniFloat32, uniSum, world[0], stream.stream));
  EXPECT_EQ(nccl::nccl_double_calls("cudaEventRecord"), 0);
  nccl::nccl_double_capture(stream.cuda, 0);
  UNI_OK(uniStreamSynchronize(stream.stream));
}

}  // namespace
}  // namespace unisono::testing
