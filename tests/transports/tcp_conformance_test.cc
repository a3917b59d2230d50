#include "tests/transports/conformance.h"

namespace unisono::testing {

INSTANTIATE_TEST_SUITE_P(tcp, Conformance,
                         ::testing::Values(Setup{"tcp"}, Setup{"tcp", "sockets=3"}), name_of);

}  // namespace unisono::testing
