// Express: the shortest way through the library, for blocking all-reduces of a few bytes between
// ranks that see each other's messages without the kernel (Agreement::cheap_poll). What the peers
// wait for is done first: the message leaves before the call is recorded, counted and given its
// turn, all of which then overlaps the peers' messages on their way. It is a shortcut, no other
// meaning: the same plan, fingerprint and kernel as CollectiveOperation's, to which the call is
// handed as soon as anything has to be waited for.
#pragma once

#include "unisono/unisono.h"

namespace unisono {

inline constexpr int kElsewhere = -1;

// A uniResult_t when the call is over (an error is already this thread's last error). kElsewhere:
// nothing has happened, go the usual way (another shape, the first call of its shape, an argument
// to be refused, an open group, no credit, somebody else's turn). Blocks as the usual way does.
// Arguments are unchecked: uniAllReduce's.
int express_all_reduce(const void* send, void* recv, size_t count, uniDataType_t type,
                       uniRedOp_t op, uniComm_t handle);

}  // namespace unisono
