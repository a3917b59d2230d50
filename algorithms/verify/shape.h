#pragma once

#include "algorithms/verify/wiring.h"

namespace unisono::verify {

// First of all checks: plans[r] is rank r's of one call, with the collective's own buffers (rules 6
// to 8).
Status check_shape(const Plans& plans);

}  // namespace unisono::verify
