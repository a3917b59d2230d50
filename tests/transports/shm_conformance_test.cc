#include "tests/transports/conformance.h"

namespace unisono::testing {

INSTANTIATE_TEST_SUITE_P(shm, Conformance, ::testing::Values(Setup{"shm"}), name_of);

}  // namespace unisono::testing
