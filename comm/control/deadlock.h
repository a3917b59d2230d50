// Deadlock: whether the calls of stalled ranks wait for each other, so that none can ever end.
//
// A communicator's operations run one after the other, so what a rank is in now is all it can do:
// what a peer wants of a later operation does not come before the present one ends. That makes
// "this call cannot end before that one" a fact about calls, not about moments, and reports of
// different moments can be put together. Of a collective it is taken that it may wait for every
// rank to call it, as the interface says. Messages on their way never look like a deadlock: a send
// or recv is only held for stuck when its counterpart has not been issued.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "comm/control/control.h"

namespace unisono::control {

// By rank, what those waiting have published. Returns ranks that wait each for the next, and the
// last for the first, beginning with one in a send or recv; empty if there are none. Pure.
std::vector<int32_t> find_deadlock(const std::map<int32_t, StallReport>& stalls, int32_t ranks);

}  // namespace unisono::control
