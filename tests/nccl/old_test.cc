// With NCCL 2.18: what it lacks is done by sends and receives, and by an id of its own.
#include "tests/comm/collective_case.h"
#include "tests/nccl/harness.h"

namespace unisono::testing {
namespace {

using WithNccl218 = OnDouble;

TEST_F(WithNccl218, GatherScatterAndAllToAllGiveTheReferencesResults) {
  nccl::nccl_double_any_buffer(1);
  const DeviceRanks world(3);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    for (const Kind kind : {Kind::kGather, Kind::kScatter, Kind::kAllToAll}) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{33}}) {
        for (const bool in_place : {false, true}) {
          if (in_place && kind == Kind::kAllToAll) continue;
          const Case c{kind, uniInt32, uniSum, count, 1, in_place};
          CaseRun run(c, rank, 3);
          UNI_OK(run.call(comm, nullptr));
          EXPECT_EQ(run.wrong(), "") << "rank " << rank << ": " << c.text();
        }
      }
    }
  });
  EXPECT_GT(nccl::nccl_double_calls("ncclSend"), 0);
  EXPECT_EQ(nccl::nccl_double_calls("ncclGather"), 0);
}

TEST_F(WithNccl218, ASplitMeetsThroughAnIdOfItsOwn) {
  const DeviceRanks world(4);
  ASSERT_TRUE(world.ok()) << world.error();
  world.run([](int rank, uniComm_t comm) {
    uniComm_t child = nullptr;
    UNI_OK(uniCommSplit(comm, rank % 2, rank, &child, nullptr));
    const Device<int32_t> buffer({1 << rank});
    UNI_OK(uniAllReduce(buffer.get(), buffer.get(), 1, uniInt32, uniSum, child, nullptr));
    EXPECT_EQ(buffer.values().front(), rank % 2 == 0 ? 0b0101 : 0b1010);
    UNI_OK(uniCommDestroy(child));
  });
  EXPECT_EQ(nccl::nccl_double_calls("ncclGetUniqueId"), 3);
}

TEST_F(WithNccl218, RegistrationIsNoLossButOfSpeed) {
  const DeviceRanks world(1);
  ASSERT_TRUE(world.ok()) << world.error();
  const Device<int32_t> buffer({3});
  void* handle = nullptr;
  UNI_OK(uniCommRegister(world[0], buffer.get(), 4, &handle));
  UNI_OK(uniAllReduce(buffer.get(), buffer.get(), 1, uniInt32, uniSum, world[0], nullptr));
  UNI_OK(uniCommDeregister(world[0], handle));
}

}  // namespace
}  // namespace unisono::testing
