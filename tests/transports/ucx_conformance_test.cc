#include "tests/lsan_with_ucx.h"
#include "tests/transports/conformance.h"

namespace unisono::testing {

INSTANTIATE_TEST_SUITE_P(ucx, Conformance,
                         ::testing::Values(Setup{"ucx", "tls=shm"}, Setup{"ucx", "tls=tcp"}),
                         name_of);

}  // namespace unisono::testing
