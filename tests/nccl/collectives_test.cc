// Collectives on device buffers through NCCL: the same results as the reference's, blocking and on
// the user's streams.
#include "tests/comm/collective_case.h"
#include "tests/nccl/harness.h"

namespace unisono::testing {
namespace {

using Collectives = OnDouble;

// What NCCL has no operation for.
bool lacks(const Case& c) {
  return reduces(c.kind) && c.type != uniBool && c.op >= uniBand;
}

std::vector<Case> table() {
  std::vector<Case> cases;
  for (int kind = 0; kind < kKinds; kind++) {
    for (int type = 0; type < uniNumTypes; type++) {
      for (int op = 0; op < uniNumOps; op++) {
        Case c;
        c.kind = static_cast<Kind>(kind);
        c.type = static_cast<uniDataType_t>(type);
        c.op = static_cast<uniRedOp_t>(op);
        if (!reduces(c.kind) && op != uniSum) continue;
        if (!defined(c.op, c.type)) continue;
        // Whether it wraps before it divides is not said by NCCL; nor has it a bool's exclusive or.
        if (c.op == uniAvg && size_of(c.type) == 1) continue;
        if (c.op == uniBxor && c.type == uniBool) continue;
        for (const size_t count : {size_t{0}, size_t{1}, size_t{33}}) {
          c.count = count;
          c.root = rooted(c.kind) ? (kind + type) % 4 : 0;
          c.in_place = c.kind != Kind::kAllToAll && count == 33 && (type + op) % 2 == 0;
          cases.push_back(c);
        }
      }
    }
  }
  return cases;
}

void run_case(const Case& c, int rank, uniComm_t comm, const UserStream* stream) {
  CaseRun run(c, rank, 4);
  const uniResult_t result = run.call(comm, stream == nullptr ? nullptr : stream->stream);
  if (lacks(c)) {
    EXPECT_EQ(result, uniInvalidArgument) << c.text();
    EXPECT_NE(std::string(uniGetLastError(nullptr)).find("op: NCCL has no"), std::string::npos);
    return;
  }
  EXPECT_EQ(result, uniSuccess) << c.text() << ": " << uniGetLastError(nullptr);
  if (stream != nullptr) UNI_OK(uniStreamSynchronize(stream->stream));
  EXPECT_EQ(run.wrong(), "") << "rank " << rank << ": " << c.text();
}

TEST_F(Collectives, OfEveryTypeAndOperationGiveTheReferencesResultsBlocking) {
  nccl::nccl_double_any_buffer(1);
  const DeviceRanks world(4);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    for (const Case& c : table()) run_case(c, rank, comm, nullptr);
    uniCommInfo_t info{};
    info.size = sizeof info;
    UNI_OK(uniCommQuery(comm, &info));
    EXPECT_STREQ(info.last_algorithm, "nccl");
  });
}

TEST_F(Collectives, OfEveryTypeAndOperationGiveTheReferencesResultsOnAWrappedStream) {
  nccl::nccl_double_any_buffer(1);
  const DeviceRanks world(4);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    const UserStream stream;
    for (const Case& c : table()) run_case(c, rank, comm, &stream);
  });
}

TEST_F(Collectives, ReturnBeforeTheDeviceHasComeToThemAndRunInTheStreamsOrder) {
  const DeviceRanks world(2);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    const Device<int64_t> value({rank + 1});
    const UserStream stream;
    nccl::nccl_double_hold(stream.cuda);
    for (int i = 0; i < 20; i++) {
      UNI_OK(uniAllReduce(value.get(), value.get(), 1, uniInt64, uniSum, comm, stream.stream));
    }
    EXPECT_EQ(uniStreamQuery(stream.stream), uniInProgress);
    EXPECT_EQ(nccl::cudaGetLastError(), nccl::kCudaSuccess);  // "not ready" is not the user's
    nccl::nccl_double_open();
    UNI_OK(uniStreamSynchronize(stream.stream));
    EXPECT_EQ(value.values().front(), 3LL << 19);
    EXPECT_EQ(uniStreamQuery(stream.stream), uniSuccess);
  });
}

}  // namespace
}  // namespace unisono::testing
