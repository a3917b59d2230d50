#include "tests/transports/conformance.h"

namespace unisono::testing {

// Once as it comes, once with every send completing late, as a send by reference does.
INSTANTIATE_TEST_SUITE_P(sim, Conformance,
                         ::testing::Values(Setup{"sim", "seed=1"},
                                           Setup{"sim", "seed=2,late=1,jitter=2,gbps=0.5"}),
                         name_of);

}  // namespace unisono::testing
