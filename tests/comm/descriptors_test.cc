// A process whose file descriptors run out.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <vector>

#include "unisono/unisono.h"

namespace unisono {
namespace {

// Soft limit of descriptors, until the end of the scope.
class AtMostDescriptors {
 public:
  explicit AtMostDescriptors(rlim_t most) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit now{most, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &now);
  }
  ~AtMostDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  AtMostDescriptors(const AtMostDescriptors&) = delete;

 private:
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
      const AtMostDescriptors few(200);
      EXPECT_NE(uniCommInitAll(comms.data(), 16, &config), uniSuccess);
      EXPECT_STRNE(uniGetLastError(nullptr), "");
    }
    config.timeout_ms = 60'000;
    ASSERT_EQ(uniCommInitAll(comms.data(), 4, &config), uniSuccess) << uniGetLastError(nullptr);
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_EQ(uniCommDestroy(comms[static_cast<size_t>(rank)]), uniSuccess);
  }
}

}  // namespace
}  // namespace unisono
