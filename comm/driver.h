// Driver: makes operations happen. The thread that calls drives them all together, spinning
// shortly, then yielding, then asleep, publishing stalls and keeping deadlines. Operations of
// several communicators may be driven at once (groups).
#pragma once

#include <span>

#include "base/status.h"
#include "comm/operation.h"

namespace unisono {

// Until every operation is complete or failed. Each has its ticket; operations of one communicator
// come in ticket order. Returns the first error; a failed communicator fails all its operations.
// The operations stay the caller's.
Status drive(std::span<Operation* const> operations);

// The same for one operation, with a first stretch of spinning that takes no memory and reads no
// clock: the hot path.
Status drive_one(Operation& operation);
// The same from after start(): the operation has its turn and has been started.
Status drive_started(Operation& operation);

// Blocks until all tickets before `ticket` are done. Does not take the turn.
void wait_for_turn(Communicator& communicator, uint64_t ticket);

}  // namespace unisono
