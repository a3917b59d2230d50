// A process whose file descriptors or address space run out.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "unisono/unisono.h"

namespace unisono {
namespace {

// A soft limit, until the end of the scope.
class Limit {
 public:
  Limit(int what, rlim_t most) : what_(what) {
    getrlimit(static_cast<__rlimit_resource>(what), &before_);
    const rlimit now{most, before_.rlim_max};
    setrlimit(static_cast<__rlimit_resource>(what), &now);
  }
  ~Limit() { setrlimit(static_cast<__rlimit_resource>(what_), &before_); }
  Limit(const Limit&) = delete;

 private:
  const int what_;
  rlimit before_{};
};

// Every dial fails at once then, its unix socket first: none may leave a timer behind. Sanitizers
// see it surely, others as corrupted memory in the second half.
TEST(Descriptors, StartingWithTooFewIsAnErrorAndLeavesNothingBehind) {
  for (int round = 0; round < 3; ++round) {
    std::vector<uniComm_t> comms(16);
    uniConfig_t config = UNI_CONFIG_INITIALIZER;
    config.timeout_ms = 1000;
    {
      const Limit few(RLIMIT_NOFILE, 200);
      EXPECT_NE(uniCommInitAll(comms.data(), 16, &config), uniSuccess);
      EXPECT_STRNE(uniGetLastError(nullptr), "");
    }
    config.timeout_ms = 60'000;
    ASSERT_EQ(uniCommInitAll(comms.data(), 4, &config), uniSuccess) << uniGetLastError(nullptr);
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_EQ(uniCommDestroy(comms[static_cast<size_t>(rank)]), uniSuccess);
  }
}

// The first ranks take what there is for their shared memory. The others do without, and say so to
// those who would wait for them.
TEST(AddressSpace, RanksWithoutSharedMemoryTakeAnotherTransportAtOnce) {
#ifdef UNISONO_INSTRUMENTED
  GTEST_SKIP() << "sanitizers take terabytes of address space";
#endif
  const Limit some(RLIMIT_AS, rlim_t{6} << 30);
  std::vector<uniComm_t> comms(7);
  uniConfig_t config = UNI_CONFIG_INITIALIZER;
  config.timeout_ms = 30'000;
  ASSERT_EQ(uniCommInitAll(comms.data(), 7, &config), uniSuccess) << uniGetLastError(nullptr);
  uniCommInfo_t info{};
  info.size = sizeof info;
  bool over_tcp = false;
  for (const uniComm_t comm : comms) {
    ASSERT_EQ(uniCommQuery(comm, &info), uniSuccess);
    over_tcp |= std::string(info.transports).find("tcp") != std::string::npos;
  }
  EXPECT_TRUE(over_tcp) << "6 GiB were enough for all: the limit is too high for this test";
  std::vector<int32_t> values(7, 1);
  ASSERT_EQ(uniGroupStart(), uniSuccess);
  for (size_t rank = 0; rank < 7; ++rank) {
    EXPECT_EQ(uniAllReduce(&values[rank], &values[rank], 1, uniInt32, uniSum, comms[rank], nullptr),
              uniSuccess);
  }
  ASSERT_EQ(uniGroupEnd(), uniSuccess) << uniGetLastError(nullptr);
  for (const int32_t value : values) EXPECT_EQ(value, 7);
  for (const uniComm_t comm : comms) EXPECT_EQ(uniCommDestroy(comm), uniSuccess);
}

}  // namespace
}  // namespace unisono
