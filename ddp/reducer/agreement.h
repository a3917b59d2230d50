// What all ranks must have alike, compared with rank 0's.
#pragma once

#include <span>
#include <vector>

#include "ddp/reducer/parameter.h"
#include "ddp/reducer/settings.h"

namespace unisono::ddp {

// Collective; blocks. One small all-gather where all agree. A difference is uniMismatch, with the
// same words on every rank: those of the lowest rank that differs from rank 0.
Status verify_agreement(uniComm_t comm, uniStream_t stream, std::span<const Parameter> parameters,
                        const Settings& settings);

// Whether `order` has every index under its size once. It comes from a peer.
bool is_permutation_of_indices(std::span<const int32_t> order);

}  // namespace unisono::ddp
