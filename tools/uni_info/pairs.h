// What the ranks of a job chose between each pair of them, and why.
#pragma once

#include "tools/uni_info/gather.h"
#include "unisono/unisono.h"

namespace unisono::uni_info {

// Collective: every rank of the job calls. The whole at rank 0, null at the others; {"problem":
// why} if a call of the library failed.
Json describe_pairs(uniComm_t comm);

}  // namespace unisono::uni_info
