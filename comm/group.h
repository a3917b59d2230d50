// Group: what uniGroupStart collects on a thread and uniGroupEnd issues at once; and how a single
// call is issued.
#pragma once

#include <span>

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/pair_operation.h"
#include "comm/stream.h"

namespace unisono {

// Issue a checked call: into the thread's open group, onto `stream`, or (null) to completion.
Status issue_collective(Communicator& comm, const Call& call, Stream* stream);
// The same over the transports, on host buffers, whatever the communicator's device; no open group.
Status issue_on_host(Communicator& comm, const Call& call, Stream* stream);
Status issue_transfers(Communicator& comm, std::span<const Transfer> transfers, Stream* stream);
inline Status issue_transfer(Communicator& comm, const Transfer& transfer, Stream* stream) {
  return issue_transfers(comm, {&transfer, 1}, stream);
}

void group_start();
// kInvalidUsage without a start. Returns the first argument error noted within the group, and then
// issues nothing.
Status group_end();
// Of this thread. Looked at by every call: kept where it takes one instruction to reach.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local int group_depth;
inline bool group_open() {
  return group_depth > 0;
}
// Whether calls of the open group wait that use it: it must not go away before uniGroupEnd.
bool group_uses(const Communicator& comm);
bool group_uses(const Stream& stream);
// Notes that a call within the open group was refused.
void group_note(const Status& status);

}  // namespace unisono
