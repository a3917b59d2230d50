// Everything else of a communicator with a device: send and recv, v-variants, groups, created
// operations, split, registration; and what is refused.
#include <cstring>
#include <numeric>

#include "comm/reduce/half.h"
#include "tests/nccl/harness.h"

namespace unisono::testing {
namespace {

using Calls = OnDouble;
using Ints = std::vector<int32_t>;

void expect_refused(uniResult_t result, uniResult_t want, const char* words) {
  EXPECT_EQ(result, want) << words;
  EXPECT_NE(std::string(uniGetLastError(nullptr)).find(words), std::string::npos)
      << uniGetLastError(nullptr);
}

TEST_F(Calls, TheFirstMayBeASendAndARecvBetweenTwoOfFourRanks) {
  const DeviceRanks world(4);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    const Device<int32_t> buffer(rank == 1 ? Ints{4, 5, 6} : Ints{0, 0, 0});
    if (rank == 1) UNI_OK(uniSend(buffer.get(), 3, uniInt32, 3, comm, nullptr));
    if (rank == 3) {
      UNI_OK(uniRecv(buffer.get(), 3, uniInt32, 1, comm, nullptr));
      EXPECT_EQ(buffer.values(), (Ints{4, 5, 6}));
    }
  });
}

TEST_F(Calls, OfAGroupExchangeBothWaysAndWithOneself) {
  const DeviceRanks world(3);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    const int next = (rank + 1) % 3, before = (rank + 2) % 3;
    const Device<int32_t> mine({rank, rank * 10}), from_before({-1, -1}), own({-1, -1}), none({7});
    const UserStream stream;
    UNI_OK(uniGroupStart());
    UNI_OK(uniSend(mine.get(), 2, uniInt32, next, comm, stream.stream));
    UNI_OK(uniRecv(from_before.get(), 2, uniInt32, before, comm, stream.stream));
    UNI_OK(uniSend(mine.get(), 2, uniInt32, rank, comm, stream.stream));
    UNI_OK(uniRecv(own.get(), 2, uniInt32, rank, comm, stream.stream));
    UNI_OK(uniRecv(none.get(), 0, uniInt32, before, comm, stream.stream));
    UNI_OK(uniSend(none.get(), 0, uniInt32, next, comm, stream.stream));
    UNI_OK(uniGroupEnd());
    UNI_OK(uniStreamSynchronize(stream.stream));
    EXPECT_EQ(from_before.values(), (Ints{before, before * 10}));
    EXPECT_EQ(own.values(), mine.values());
    EXPECT_EQ(none.values(), Ints{7});
  });
}

TEST_F(Calls, OfAGroupLetOneThreadDriveAllRanksOnTheirOwnDevices) {
  const DeviceRanks world(3);
  ASSERT_TRUE(world.ok()) << world.error();
  const Device<int32_t> a({1, 2}), b({10, 20}), c({100, 200});
  int32_t* const buffers[] = {a.get(), b.get(), c.get()};
  UNI_OK(uniGroupStart());
  for (int r = 0; r < 3; r++) {
    UNI_OK(uniAllReduce(buffers[r], buffers[r], 2, uniInt32, uniSum, world[r], nullptr));
    UNI_OK(uniBroadcast(buffers[r], buffers[r], 1, uniInt32, 0, world[r], nullptr));
  }
  UNI_OK(uniGroupEnd());
  for (const auto* buffer : {&a, &b, &c}) EXPECT_EQ(buffer->values(), (Ints{111, 222}));
  int device = -1;
  EXPECT_EQ(nccl::cudaGetDevice(&device), nccl::kCudaSuccess);
  EXPECT_EQ(device, 0);  // as the caller had it
}

TEST_F(Calls, OnHostAndDeviceBuffersMayShareAGroup) {
  const DeviceRanks world(2);
  const Ranks host(2, {});
  ASSERT_TRUE(world.ok() && host.ok()) << world.error();
  world.run([&](int rank, uniComm_t comm) {
    const Device<int32_t> buffer({rank + 1});
    int32_t value = rank + 1;
    UNI_OK(uniGroupStart());
    UNI_OK(uniAllReduce(&value, &value, 1, uniInt32, uniSum, host[rank], nullptr));
    UNI_OK(uniAllReduce(buffer.get(), buffer.get(), 1, uniInt32, uniProd, comm, nullptr));
    UNI_OK(uniGroupEnd());
    EXPECT_EQ(value, 3);
    EXPECT_EQ(buffer.values(), Ints{2});
  });
}

TEST_F(Calls, OfUnequalBlocksGiveEachRankItsOwn) {
  const DeviceRanks world(3);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    const size_t counts[] = {2, 0, 3}, displs[] = {4, 2, 0};  // in descending order, with a gap
    const auto own = static_cast<size_t>(rank);
    const Ints all_blocks = {20, 21, 22, -1, 0, 1};
    const Ints mine(all_blocks.begin() + static_cast<ptrdiff_t>(displs[own]),
                    all_blocks.begin() + static_cast<ptrdiff_t>(displs[own] + counts[own]));
    {
      const Device<int32_t> send(mine), recv({-1, -1, -1, -1, -1, -1});
      UNI_OK(uniAllGatherV(send.get(), recv.get(), counts, displs, uniInt32, comm, nullptr));
      EXPECT_EQ(recv.values(), all_blocks);
    }
    {
      const Device<int32_t> send(all_blocks), recv(Ints(3, -1));
      UNI_OK(uniReduceScatterV(send.get(), recv.get(), counts, displs, uniInt32, uniSum, comm,
                               nullptr));
      Ints want(3, -1);
      for (size_t i = 0; i < mine.size(); i++) want[i] = mine[i] * 3;
      EXPECT_EQ(recv.values(), want);
    }
    for (const bool in_place : {false, true}) {
      const Device<int32_t> send(mine);
      const Device<int32_t> all(rank == 2 && in_place ? all_blocks : Ints(6, -1));
      const bool own_place = in_place && rank == 2;
      UNI_OK(uniGatherV(own_place ? all.get() + displs[own] : send.get(), all.get(), counts, displs,
                        uniInt32, 2, comm, nullptr));
      if (rank == 2) {
        EXPECT_EQ(all.values(), all_blocks);
      }
      const Device<int32_t> recv(Ints(3, -1));
      UNI_OK(uniScatterV(all.get(), own_place ? all.get() + displs[own] : recv.get(), counts,
                         displs, uniInt32, 2, comm, nullptr));
      Ints want(3, -1);
      if (!own_place) std::copy(mine.begin(), mine.end(), want.begin());
      EXPECT_EQ(recv.values(), want);
    }
  });
}

TEST_F(Calls, AllToAllVSendsEachPairItsOwnCount) {
  const DeviceRanks world(3);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    // Rank a sends a+b elements, each 10a+b, to rank b.
    Ints out, want;
    size_t sends[3], recvs[3];
    for (int b = 0; b < 3; b++) {
      sends[b] = recvs[b] = static_cast<size_t>(rank + b);
      out.insert(out.end(), sends[b], 10 * rank + b);
      want.insert(want.end(), recvs[b], 10 * b + rank);
    }
    const Device<int32_t> send(out), recv(Ints(want.size(), -1));
    UNI_OK(uniAllToAllV(send.get(), sends, nullptr, recv.get(), recvs, nullptr, uniInt32, comm,
                        nullptr));
    EXPECT_EQ(recv.values(), want);
  });
}

TEST_F(Calls, WithACreatedOperationScaleByEachRanksOwnScalar) {
  const DeviceRanks world(2);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    const float scalar = rank == 0 ? 0.5f : 4;
    const uint16_t half = float_to_bfloat16(scalar);
    uniRedOp_t of_float = uniSum, of_half = uniSum;
    UNI_OK(uniRedOpCreatePreMulSum(&of_float, &scalar, uniFloat32, comm));
    UNI_OK(uniRedOpCreatePreMulSum(&of_half, &half, uniBfloat16, comm));
    const Device<float> singles({2, 6});
    const Device<uint16_t> halves({float_to_bfloat16(2), float_to_bfloat16(6)});
    UNI_OK(uniAllReduce(singles.get(), singles.get(), 2, uniFloat32, of_float, comm, nullptr));
    UNI_OK(uniAllReduce(halves.get(), halves.get(), 2, uniBfloat16, of_half, comm, nullptr));
    EXPECT_EQ(singles.values(), (std::vector<float>{9, 27}));
    EXPECT_EQ(halves.values()[1], float_to_bfloat16(27));
    UNI_OK(uniRedOpDestroy(of_float, comm));
    expect_refused(
        uniAllReduce(singles.get(), singles.get(), 2, uniFloat32, of_float, comm, nullptr),
        uniInvalidArgument, "op");
    // The other goes with the communicator.
  });
}

int32_t sum_over(uniComm_t comm, int32_t value) {
  const Device<int32_t> buffer({value});
  UNI_OK(uniAllReduce(buffer.get(), buffer.get(), 1, uniInt32, uniSum, comm, nullptr));
  return buffer.values().front();
}

TEST_F(Calls, OfChildrenReachTheRanksOfTheirColorInTheOrderOfTheirKeys) {
  const DeviceRanks world(5);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    const int color = rank == 4 ? UNI_SPLIT_NOCOLOR : rank % 2;
    uniComm_t child = nullptr;
    UNI_OK(uniCommSplit(comm, color, -rank, &child, nullptr));
    EXPECT_EQ(child == nullptr, rank == 4);
    if (child != nullptr) {
      EXPECT_EQ(sum_over(child, 1 << rank), rank % 2 == 0 ? 0b0101 : 0b1010);
      const Device<int32_t> own({rank}), all({-1, -1});
      UNI_OK(uniAllGather(own.get(), all.get(), 1, uniInt32, child, nullptr));
      EXPECT_EQ(all.values(), (Ints{rank % 2 + 2, rank % 2}));
    }
    UNI_OK(uniCommDestroy(child));
    EXPECT_EQ(sum_over(comm, 1), 5);  // the parent goes on
  });
  EXPECT_EQ(nccl::nccl_double_calls("ncclCommSplit"), 5);
  EXPECT_EQ(nccl::nccl_double_calls("ncclGetUniqueId"), 1);
}

TEST_F(Calls, OfAGroupsChildAreItsMembersOnly) {
  const DeviceRanks world(4);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    if (rank == 0) return;
    const int members[] = {3, 1, 2};
    uniComm_t child = nullptr;
    UNI_OK(uniCommCreateGroup(comm, members, 3, 7, &child, nullptr));
    EXPECT_EQ(sum_over(child, rank), 6);
    UNI_OK(uniCommDestroy(child));
  });
}

TEST_F(Calls, OfAChildOnHostBuffersTakeHostBuffers) {
  const DeviceRanks world(2);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    const uniConfig_t config = device_config({60'000, "cpu"});
    uniComm_t child = nullptr;
    UNI_OK(uniCommSplit(comm, 0, 0, &child, &config));
    int32_t value = rank + 1;
    UNI_OK(uniAllReduce(&value, &value, 1, uniInt32, uniSum, child, nullptr));
    EXPECT_EQ(value, 3);
    UNI_OK(uniCommDestroy(child));
  });
  EXPECT_EQ(nccl::nccl_double_calls("ncclCommSplit"), 0);
}

TEST_F(Calls, MayRegisterMemoryAndFinalizeInOrder) {
  const DeviceRanks world(2);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    const Device<int32_t> buffer({rank});
    void* handle = nullptr;
    UNI_OK(uniCommRegister(comm, buffer.get(), 4, &handle));
    UNI_OK(uniAllReduce(buffer.get(), buffer.get(), 1, uniInt32, uniSum, comm, nullptr));
    UNI_OK(uniCommDeregister(comm, handle));
    expect_refused(uniCommDeregister(comm, handle), uniInvalidArgument, "handle");
    UNI_OK(uniCommFinalize(comm));
    expect_refused(uniBarrier(comm, nullptr), uniInvalidUsage, "finalized");
  });
  EXPECT_EQ(nccl::nccl_double_calls("ncclCommRegister"), 2);
  EXPECT_EQ(nccl::nccl_double_calls("ncclCommDestroy"), 2);
}

TEST_F(Calls, WithTheWrongKindOfStreamOrCallNameTheArgument) {
  const DeviceRanks world(1);
  const Ranks host(1, {});
  ASSERT_TRUE(world.ok() && host.ok()) << world.error();
  const uniComm_t comm = world[0];
  const UserStream stream;
  uniStream_t host_stream = nullptr;
  uniEvent_t event = nullptr;
  UNI_OK(uniStreamCreate(&host_stream));
  UNI_OK(uniEventCreate(&event));
  int32_t value = 1;
  int source = 0;
  expect_refused(uniAllReduce(&value, &value, 1, uniInt32, uniSum, comm, host_stream),
                 uniInvalidArgument, "stream: is a host stream");
  expect_refused(uniSend(&value, 1, uniInt32, 0, comm, host_stream), uniInvalidArgument,
                 "stream: is a host stream");
  expect_refused(uniBarrier(host[0], stream.stream), uniInvalidArgument,
                 "stream: wraps a CUDA stream");
  expect_refused(uniRecvAny(&value, 1, uniInt32, &source, comm, nullptr), uniInvalidUsage, "comm");
  expect_refused(uniEventRecord(event, stream.stream), uniInvalidUsage, "cudaEventRecord");
  expect_refused(uniStreamWaitEvent(stream.stream, event), uniInvalidUsage, "cudaStreamWaitEvent");
  expect_refused(uniStreamLaunchHostFunc(
                     stream.stream, [](void*, uniResult_t) {}, nullptr),
                 uniInvalidUsage, "cudaLaunchHostFunc");
  UNI_OK(uniEventDestroy(event));
  UNI_OK(uniStreamDestroy(host_stream));
}

TEST_F(Calls, OfAGroupWithARefusedCallAreNotIssued) {
  const DeviceRanks world(1);
  ASSERT_TRUE(world.ok()) << world.error();
  const Device<int32_t> buffer({5});
  UNI_OK(uniGroupStart());
  UNI_OK(uniAllReduce(buffer.get(), buffer.get(), 1, uniInt32, uniSum, world[0], nullptr));
  expect_refused(uniAllReduce(buffer.get(), buffer.get(), 1, uniInt32, uniBxor, world[0], nullptr),
                 uniInvalidArgument, "op: NCCL has no bxor of int32");
  expect_refused(uniGroupEnd(), uniInvalidArgument, "nothing of the group was issued");
  EXPECT_EQ(nccl::nccl_double_calls("ncclAllReduce"), 0);
}

TEST_F(Calls, OfRanksThatDisagreeAboutTheDeviceAreRefusedByName) {
  uniUniqueId id{};
  UNI_OK(uniGetUniqueId(&id));
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; r++) {
    ranks.emplace_back([&, r] {
      const uniConfig_t config = device_config({60'000, r == 0 ? "cpu" : "cuda:1"});
      uniComm_t comm = nullptr;
      expect_refused(uniCommInitRankConfig(&comm, 2, id, r, &config), uniInvalidArgument,
                     "config.device: rank 1 wants 'cuda', rank 0 'cpu'");
    });
  }
  for (std::thread& rank : ranks) rank.join();
  const DeviceRanks too_many(1, {60'000, "cuda:99"});
  EXPECT_EQ(too_many.result(), uniInvalidArgument);
  EXPECT_NE(too_many.error().find("there is no device 99"), std::string::npos) << too_many.error();
}

TEST_F(Calls, OfRanksOnOneDeviceAreRefusedByNcclOnAllOfThem) {
  const DeviceRanks world(2, {60'000, "cuda:3"});
  EXPECT_EQ(world.result(), uniInvalidUsage) << world.error();
  EXPECT_NE(world.error().find("config.device"), std::string::npos) << world.error();
}

}  // namespace
}  // namespace unisono::testing
