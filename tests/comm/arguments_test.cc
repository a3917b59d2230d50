// Wrong arguments: each is refused with uniInvalidArgument (or the code that the header names) and
// a message that holds the argument's name, and nothing is sent.
#include <limits>

#include "tests/comm/collective_case.h"

namespace unisono::testing {
namespace {

struct Bad {
  const char* call;      // for the message of a failure
  const char* argument;  // what the library's message must hold
  std::function<uniResult_t()> run;
  uniResult_t result = uniInvalidArgument;
};

#define BAD(argument, expression)                     \
  Bad {                                               \
#expression, argument, [&] { return expression; } \
  }

void check(const std::vector<Bad>& table) {
  for (const Bad& bad : table) {
    EXPECT_EQ(bad.run(), bad.result) << bad.call << ", " << bad.argument;
    const std::string text = uniGetLastError(nullptr);
    EXPECT_NE(text.find(bad.argument), std::string::npos)
        << bad.call << ": no '" << bad.argument << "' in: " << text;
  }
}

constexpr uniDataType_t f32 = uniFloat32;
constexpr uniStream_t s = nullptr;
constexpr auto kNoType = static_cast<uniDataType_t>(uniNumTypes);
constexpr auto kNoOp = static_cast<uniRedOp_t>(uniNumOps);
constexpr size_t kHuge = std::numeric_limits<size_t>::max() / 2;

// Two ranks of which only rank 0 is used; the barrier at the end shows that nothing was sent.
class Arguments : public ::testing::Test {
 protected:
  Arguments() : world(2, {"shm"}), comm(world[0]) {}
  void TearDown() override {
    world.run([](int, uniComm_t c) { UNI_OK(uniBarrier(c, nullptr)); });
    uniCommInfo_t info{};
    info.size = sizeof info;
    UNI_OK(uniCommQuery(comm, &info));
    EXPECT_EQ(info.collectives, 1U) << "a refused call took a sequence number";
    EXPECT_EQ(info.failed, 0);
  }
  Ranks world;
  uniComm_t comm;
  float a[64] = {}, b[64] = {};
};

TEST_F(Arguments, OfReducingCollectives) {
  check({
      BAD("send", uniAllReduce(nullptr, b, 4, f32, uniSum, comm, s)),
      BAD("recv", uniAllReduce(a, nullptr, 4, f32, uniSum, comm, s)),
      BAD("count", uniAllReduce(a, b, kHuge, f32, uniSum, comm, s)),
      BAD("type", uniAllReduce(a, b, 4, kNoType, uniSum, comm, s)),
      BAD("type", uniAllReduce(a, b, 4, static_cast<uniDataType_t>(-1), uniSum, comm, s)),
      BAD("op", uniAllReduce(a, b, 4, f32, kNoOp, comm, s)),
      BAD("op", uniAllReduce(a, b, 4, f32, uniBxor, comm, s)),
      BAD("op", uniAllReduce(a, b, 4, uniBool, uniAvg, comm, s)),
      BAD("op", uniAllReduce(a, b, 4, f32, static_cast<uniRedOp_t>(64), comm, s)),
      BAD("recv", uniAllReduce(a, a + 1, 4, f32, uniSum, comm, s)),
      BAD("comm", uniAllReduce(a, b, 4, f32, uniSum, nullptr, nullptr)),
      BAD("root", uniReduce(a, b, 4, f32, uniSum, 2, comm, s)),
      BAD("root", uniReduce(a, b, 4, f32, uniSum, -1, comm, s)),
      BAD("send", uniReduce(nullptr, b, 4, f32, uniSum, 1, comm, s)),
      BAD("recv", uniReduce(a, nullptr, 4, f32, uniSum, 0, comm, s)),
      BAD("op", uniReduce(a, b, 4, f32, kNoOp, 0, comm, s)),
      BAD("type", uniReduce(a, b, 4, kNoType, uniSum, 0, comm, s)),
      BAD("count", uniReduce(a, b, kHuge, f32, uniSum, 0, comm, s)),
      BAD("comm", uniReduce(a, b, 4, f32, uniSum, 0, nullptr, nullptr)),
      BAD("send", uniReduceScatter(nullptr, b, 4, f32, uniSum, comm, s)),
      BAD("recv", uniReduceScatter(a, nullptr, 4, f32, uniSum, comm, s)),
      BAD("recv", uniReduceScatter(a, a + 4, 4, f32, uniSum, comm, s)),
      BAD("count", uniReduceScatter(a, b, kHuge / 4, f32, uniSum, comm, s)),
      BAD("op", uniReduceScatter(a, b, 4, f32, kNoOp, comm, s)),
      BAD("type", uniReduceScatter(a, b, 4, kNoType, uniSum, comm, s)),
      BAD("comm", uniReduceScatter(a, b, 4, f32, uniSum, nullptr, nullptr)),
  });
}

TEST_F(Arguments, OfMovingCollectives) {
  check({
      BAD("send", uniBroadcast(nullptr, b, 4, f32, 0, comm, s)),
      BAD("recv", uniBroadcast(a, nullptr, 4, f32, 0, comm, s)),
      BAD("recv", uniBroadcast(a, a + 2, 4, f32, 0, comm, s)),
      BAD("root", uniBroadcast(a, b, 4, f32, 7, comm, s)),
      BAD("type", uniBroadcast(a, b, 4, kNoType, 0, comm, s)),
      BAD("count", uniBroadcast(a, b, kHuge, f32, 0, comm, s)),
      BAD("comm", uniBroadcast(a, b, 4, f32, 0, nullptr, nullptr)),
      BAD("send", uniAllGather(nullptr, b, 4, f32, comm, s)),
      BAD("recv", uniAllGather(a, nullptr, 4, f32, comm, s)),
      BAD("recv", uniAllGather(a + 4, a, 4, f32, comm, s)),
      BAD("count", uniAllGather(a, b, kHuge / 4, f32, comm, s)),
      BAD("type", uniAllGather(a, b, 4, kNoType, comm, s)),
      BAD("comm", uniAllGather(a, b, 4, f32, nullptr, nullptr)),
      BAD("send", uniGather(nullptr, b, 4, f32, 1, comm, s)),
      BAD("recv", uniGather(a, nullptr, 4, f32, 0, comm, s)),
      BAD("root", uniGather(a, b, 4, f32, 2, comm, s)),
      BAD("type", uniGather(a, b, 4, kNoType, 0, comm, s)),
      BAD("count", uniGather(a, b, kHuge / 4, f32, 0, comm, s)),
      BAD("comm", uniGather(a, b, 4, f32, 0, nullptr, nullptr)),
      BAD("send", uniScatter(nullptr, b, 4, f32, 0, comm, s)),
      BAD("recv", uniScatter(a, nullptr, 4, f32, 1, comm, s)),
      BAD("root", uniScatter(a, b, 4, f32, -3, comm, s)),
      BAD("type", uniScatter(a, b, 4, kNoType, 0, comm, s)),
      BAD("count", uniScatter(a, b, kHuge / 4, f32, 0, comm, s)),
      BAD("comm", uniScatter(a, b, 4, f32, 0, nullptr, nullptr)),
      BAD("send", uniAllToAll(nullptr, b, 4, f32, comm, s)),
      BAD("recv", uniAllToAll(a, nullptr, 4, f32, comm, s)),
      BAD("recv", uniAllToAll(a, a, 4, f32, comm, s)),
      BAD("count", uniAllToAll(a, b, kHuge / 4, f32, comm, s)),
      BAD("type", uniAllToAll(a, b, 4, kNoType, comm, s)),
      BAD("comm", uniAllToAll(a, b, 4, f32, nullptr, nullptr)),
      BAD("comm", uniBarrier(nullptr, nullptr)),
  });
}

TEST_F(Arguments, OfPointToPoint) {
  int source = 0;
  check({
      BAD("send", uniSend(nullptr, 4, f32, 1, comm, s)),
      BAD("count", uniSend(a, kHuge, f32, 1, comm, s)),
      BAD("type", uniSend(a, 4, kNoType, 1, comm, s)),
      BAD("peer", uniSend(a, 4, f32, 2, comm, s)),
      BAD("peer", uniSend(a, 4, f32, -1, comm, s)),
      BAD("peer", uniSend(a, 4, f32, 0, comm, s)),
      BAD("comm", uniSend(a, 4, f32, 1, nullptr, nullptr)),
      BAD("recv", uniRecv(nullptr, 4, f32, 1, comm, s)),
      BAD("count", uniRecv(a, kHuge, f32, 1, comm, s)),
      BAD("type", uniRecv(a, 4, kNoType, 1, comm, s)),
      BAD("peer", uniRecv(a, 4, f32, 2, comm, s)),
      BAD("peer", uniRecv(a, 4, f32, 0, comm, s)),
      BAD("comm", uniRecv(a, 4, f32, 1, nullptr, nullptr)),
      BAD("recv", uniRecvAny(nullptr, 4, f32, &source, comm, s)),
      BAD("count", uniRecvAny(a, kHuge, f32, &source, comm, s)),
      BAD("type", uniRecvAny(a, 4, kNoType, &source, comm, s)),
      BAD("comm", uniRecvAny(a, 4, f32, &source, nullptr, nullptr)),
  });
}

TEST_F(Arguments, OfQueriesAndSettings) {
  int value = 0;
  uniResult_t error = uniSuccess;
  uniCommInfo_t info{}, unset{};
  info.size = sizeof info;
  uniTransportInfo_t transport{}, unset_transport{};
  transport.size = sizeof transport;
  check({
      BAD("version", uniGetVersion(nullptr)),
      BAD("comm", uniCommCount(nullptr, &value)),
      BAD("ranks", uniCommCount(comm, nullptr)),
      BAD("comm", uniCommUserRank(nullptr, &value)),
      BAD("rank", uniCommUserRank(comm, nullptr)),
      BAD("comm", uniCommGetAsyncError(nullptr, &error)),
      BAD("error", uniCommGetAsyncError(comm, nullptr)),
      BAD("comm", uniCommSetTimeout(nullptr, 5)),
      BAD("timeout_ms", uniCommSetTimeout(comm, 0)),
      BAD("timeout_ms", uniCommSetTimeout(comm, -2)),
      BAD("comm", uniCommBorrow(nullptr, "x")),
      BAD("by", uniCommBorrow(comm, nullptr)),
      BAD("comm", uniCommReturn(nullptr, "x")),
      BAD("by", uniCommReturn(comm, nullptr)),
      BAD("comm", uniCommAbort(nullptr)),
      BAD("comm", uniCommFinalize(nullptr)),
      BAD("comm", uniCommQuery(nullptr, &info)),
      BAD("info", uniCommQuery(comm, nullptr)),
      BAD("info.size", uniCommQuery(comm, &unset)),
      BAD("info", uniTransportQuery(0, nullptr)),
      BAD("info.size", uniTransportQuery(0, &unset_transport)),
      BAD("index", uniTransportQuery(-1, &transport)),
      BAD("index", uniTransportQuery(1000, &transport)),
  });
  EXPECT_EQ(uniCommDestroy(nullptr), uniSuccess);
}

TEST_F(Arguments, OfMemoryAndCreatedOps) {
  void* memory = nullptr;
  void* handle = nullptr;
  UNI_OK(uniMemAlloc(&memory, 100));
  const float scalar = 2;
  uniRedOp_t op = uniSum, other = uniSum;
  UNI_OK(uniRedOpCreatePreMulSum(&op, &scalar, f32, comm));
  check({
      BAD("pointer", uniMemAlloc(nullptr, 10)),
      BAD("bytes", uniMemAlloc(&handle, std::numeric_limits<size_t>::max())),
      BAD("pointer", uniMemFree(a)),
      BAD("pointer", uniMemFree(static_cast<char*>(memory) + 8)),
      BAD("comm", uniCommRegister(nullptr, memory, 100, &handle)),
      BAD("pointer", uniCommRegister(comm, nullptr, 100, &handle)),
      BAD("handle", uniCommRegister(comm, memory, 100, nullptr)),
      BAD("bytes", uniCommRegister(comm, memory, 0, &handle)),
      BAD("bytes", uniCommRegister(comm, memory, std::numeric_limits<size_t>::max(), &handle)),
      BAD("comm", uniCommDeregister(nullptr, memory)),
      BAD("handle", uniCommDeregister(comm, a)),
      BAD("handle", uniCommDeregister(comm, s)),
      BAD("op", uniRedOpCreatePreMulSum(nullptr, &scalar, f32, comm)),
      BAD("scalar", uniRedOpCreatePreMulSum(&other, nullptr, f32, comm)),
      BAD("type", uniRedOpCreatePreMulSum(&other, &scalar, uniInt32, comm)),
      BAD("type", uniRedOpCreatePreMulSum(&other, &scalar, kNoType, comm)),
      BAD("comm", uniRedOpCreatePreMulSum(&other, &scalar, f32, nullptr)),
      BAD("op", uniAllReduce(a, b, 4, uniFloat64, op, comm, s)),
      BAD("op", uniRedOpDestroy(uniSum, comm)),
      BAD("comm", uniRedOpDestroy(op, nullptr)),
  });
  UNI_OK(uniRedOpDestroy(op, comm));
  check({BAD("op", uniRedOpDestroy(op, comm)), BAD("op", uniAllReduce(a, b, 4, f32, op, comm, s))});
  UNI_OK(uniMemFree(memory));
  UNI_OK(uniMemFree(nullptr));
}

TEST_F(Arguments, OfStreamsAndEvents) {
  uniStream_t stream = nullptr;
  uniEvent_t event = nullptr;
  UNI_OK(uniStreamCreate(&stream));
  UNI_OK(uniEventCreate(&event));
  check({
      BAD("stream", uniStreamCreate(nullptr)),
      BAD("stream", uniStreamSynchronize(nullptr)),
      BAD("stream", uniStreamQuery(nullptr)),
      BAD("stream", uniStreamWaitEvent(nullptr, event)),
      BAD("event", uniStreamWaitEvent(stream, nullptr)),
      BAD("stream", uniStreamLaunchHostFunc(
                        nullptr, [](void*, uniResult_t) {}, nullptr)),
      BAD("fn", uniStreamLaunchHostFunc(stream, nullptr, nullptr)),
      BAD("stream", uniStreamWrapCuda(nullptr, nullptr)),
      BAD("event", uniEventCreate(nullptr)),
      BAD("event", uniEventRecord(nullptr, stream)),
      BAD("stream", uniEventRecord(event, nullptr)),
      BAD("event", uniEventQuery(nullptr)),
      BAD("event", uniEventSynchronize(nullptr, 0)),
  });
  EXPECT_EQ(uniStreamDestroy(nullptr), uniSuccess);
  EXPECT_EQ(uniEventDestroy(nullptr), uniSuccess);
  UNI_OK(uniStreamDestroy(stream));
  UNI_OK(uniEventDestroy(event));
}

TEST_F(Arguments, OfGroupsAndChildren) {
  uniComm_t child = comm;
  const int twice[] = {0, 0}, outside[] = {0, 2}, others[] = {1}, good[] = {0};
  uniConfig_t bad = UNI_CONFIG_INITIALIZER;
  bad.timeout_ms = 0;
  check({
      Bad{"uniGroupEnd", "uniGroupStart", [&] { return uniGroupEnd(); }, uniInvalidUsage},
      BAD("comm", uniCommSplit(nullptr, 0, 0, &child, nullptr)),
      BAD("child", uniCommSplit(comm, 0, 0, nullptr, nullptr)),
      BAD("color", uniCommSplit(comm, -2, 0, &child, nullptr)),
      BAD("timeout_ms", uniCommSplit(comm, 0, 0, &child, &bad)),
      BAD("comm", uniCommCreateGroup(nullptr, good, 1, 0, &child, nullptr)),
      BAD("child", uniCommCreateGroup(comm, good, 1, 0, nullptr, nullptr)),
      BAD("members", uniCommCreateGroup(comm, nullptr, 1, 0, &child, nullptr)),
      BAD("members", uniCommCreateGroup(comm, twice, 2, 0, &child, nullptr)),
      BAD("members", uniCommCreateGroup(comm, outside, 2, 0, &child, nullptr)),
      BAD("members", uniCommCreateGroup(comm, others, 1, 0, &child, nullptr)),
      BAD("count", uniCommCreateGroup(comm, good, 0, 0, &child, nullptr)),
      BAD("count", uniCommCreateGroup(comm, good, 3, 0, &child, nullptr)),
      BAD("timeout_ms", uniCommCreateGroup(comm, good, 1, 0, &child, &bad)),
  });
  EXPECT_EQ(child, nullptr);
}

TEST_F(Arguments, RefusedInAGroupMakeTheGroupIssueNothing) {
  UNI_OK(uniGroupStart());
  UNI_OK(uniAllReduce(a, b, 4, f32, uniSum, comm, s));
  EXPECT_EQ(uniAllReduce(a, b, 4, f32, kNoOp, world[1], nullptr), uniInvalidArgument);
  UNI_OK(uniSend(a, 4, f32, 1, comm, s));
  EXPECT_EQ(uniGroupEnd(), uniInvalidArgument);
  for (const char* part : {"op", "nothing of the group was issued"}) {
    EXPECT_NE(std::string(uniGetLastError(nullptr)).find(part), std::string::npos)
        << uniGetLastError(nullptr);
  }
  EXPECT_EQ(b[0], 0);
  // The next group starts anew. (Point to point, so that the sequence is TearDown's.)
  a[0] = 5;
  UNI_OK(uniGroupStart());
  UNI_OK(uniSend(a, 4, f32, 1, comm, s));
  UNI_OK(uniRecv(b, 4, f32, 0, world[1], nullptr));
  UNI_OK(uniGroupEnd());
  EXPECT_EQ(b[0], 5);
}

TEST(ArgumentsOfInit, AreCheckedBeforeAnyMeeting) {
  uniUniqueId id{};
  uniComm_t comm = nullptr;
  uniComm_t comms[2];
  auto config = [](auto change) {
    uniConfig_t c = UNI_CONFIG_INITIALIZER;
    change(c);
    return c;
  };
  auto all = [&](auto change) {
    const uniConfig_t c = config(change);
    return uniCommInitAll(comms, 2, &c);
  };
  const uniStore_t store{};
  check({
      BAD("id", uniGetUniqueId(nullptr)),
      BAD("comm", uniCommInitRank(nullptr, 2, id, 0)),
      BAD("ranks", uniCommInitRank(&comm, 0, id, 0)),
      BAD("rank", uniCommInitRank(&comm, 2, id, 2)),
      BAD("rank", uniCommInitRank(&comm, 2, id, -1)),
      BAD("id", uniCommInitRank(&comm, 2, id, 0)),
      BAD("comm", uniCommInitRankConfig(nullptr, 2, id, 0, nullptr)),
      BAD("comms", uniCommInitAll(nullptr, 2, nullptr)),
      BAD("ranks", uniCommInitAll(comms, -1, nullptr)),
      BAD("ranks", uniCommInitAll(comms, std::numeric_limits<int>::max(), nullptr)),
      BAD("comm", uniCommInitUrl(nullptr, "tcp://127.0.0.1:1", 2, 0, nullptr)),
      BAD("url", uniCommInitUrl(&comm, "smtp://x", 2, 0, nullptr)),
      BAD("url", uniCommInitUrl(&comm, "tcp://nowhere", 2, 0, nullptr)),
      BAD("rank", uniCommInitUrl(&comm, "tcp://127.0.0.1:1", 2, 2, nullptr)),
      BAD("rank", uniCommInitUrl(&comm, "tcp://127.0.0.1:1", -1, -1, nullptr)),
      BAD("comm", uniCommInitStore(nullptr, &store, "", 2, 0, nullptr)),
      BAD("store", uniCommInitStore(&comm, nullptr, "", 2, 0, nullptr)),
      BAD("store", uniCommInitStore(&comm, &store, "", 2, 0, nullptr)),
      BAD("rank", uniCommInitStore(&comm, &store, "", 2, 5, nullptr)),
      BAD("config", all([](uniConfig_t& c) { c.magic = 7; })),
      BAD("config", all([](uniConfig_t& c) { c.size = 3; })),
      BAD("config.timeout_ms", all([](uniConfig_t& c) { c.timeout_ms = 0; })),
      BAD("config.timeout_ms", all([](uniConfig_t& c) { c.timeout_ms = -5; })),
      BAD("transports", all([](uniConfig_t& c) { c.transports = "shm,pigeon"; })),
      BAD("transports", all([](uniConfig_t& c) { c.transports = ","; })),
      BAD("algorithm", all([](uniConfig_t& c) { c.algorithm = "bogosort"; })),
      BAD("config.reproducible", all([](uniConfig_t& c) { c.reproducible = 2; })),
      BAD("config.device", all([](uniConfig_t& c) { c.device = "abacus"; })),
      BAD("config.device", all([](uniConfig_t& c) { c.device = "cuda:"; })),
      BAD("config.device", all([](uniConfig_t& c) { c.device = "cuda:-1"; })),
      BAD("config.device", all([](uniConfig_t& c) { c.device = "cpu:0"; })),
  });
  EXPECT_EQ(comm, nullptr);
}

TEST(ArgumentsOfUse, AfterFinalizeOnlyDestroyIsLeft) {
  const Ranks world(1, {});
  float a = 1, b = 0;
  UNI_OK(uniCommFinalize(world[0]));
  EXPECT_EQ(uniAllReduce(&a, &b, 1, f32, uniSum, world[0], nullptr), uniInvalidUsage);
  EXPECT_NE(std::string(uniGetLastError(nullptr)).find("finalized"), std::string::npos);
  EXPECT_EQ(uniCommFinalize(world[0]), uniInvalidUsage);
}

TEST(BorrowedCommunicator, IsNotDestroyedAndTheErrorNamesTheBorrowers) {
  uniComm_t comm = nullptr;
  UNI_OK(uniCommInitAll(&comm, 1, nullptr));
  UNI_OK(uniCommBorrow(comm, "model A"));
  UNI_OK(uniCommBorrow(comm, "model B"));
  UNI_OK(uniCommBorrow(comm, "model A"));
  EXPECT_EQ(uniCommReturn(comm, "model C"), uniInvalidUsage);
  EXPECT_NE(std::string(uniGetLastError(nullptr)).find("'model C'"), std::string::npos);
  UNI_OK(uniCommReturn(comm, "model A"));
  EXPECT_EQ(uniCommDestroy(comm), uniInvalidUsage);
  EXPECT_STREQ(uniGetLastError(nullptr), "comm: is still borrowed by model B, model A");
  UNI_OK(uniBarrier(comm, nullptr));
  UNI_OK(uniCommFinalize(comm));
  UNI_OK(uniCommReturn(comm, "model A"));
  UNI_OK(uniCommReturn(comm, "model B"));
  EXPECT_EQ(uniCommReturn(comm, "model B"), uniInvalidUsage);
  UNI_OK(uniCommDestroy(comm));
}

}  // namespace
}  // namespace unisono::testing
