// Checks of the C API's arguments: every error names the argument. Pure.
#pragma once

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/pair_operation.h"
#include "unisono/unisono.h"

namespace unisono {

struct RawCall {
  Collective collective = Collective::kBarrier;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  unsigned type = uniUint8;  // as given: perhaps no value of the enum, which C++ may not even load
  uniRedOp_t op = uniSum;
  int root = -1;
};

// Fills `call`, with the buffers that this rank does not use set to null.
Status check_call(const Communicator& comm, const RawCall& raw, Call* call);
// Of a v-variant. `raw.count` is not used.
struct RawBlocks {
  const size_t* counts = nullptr;  // by rank
  const size_t* displs = nullptr;  // by rank; null: packed
};
Status check_varying(const Communicator& comm, const RawCall& raw, const RawBlocks& blocks,
                     Call* call);
// One side of an all-to-all-v: what `buffer` exchanges with each rank, as transfers. `receive` says
// which side.
Status check_exchange(const Communicator& comm, const void* buffer, const RawBlocks& blocks,
                      uniDataType_t type, bool receive, std::vector<Transfer>* transfers);
// That no received block overlaps a sent one.
Status check_apart(const std::vector<Transfer>& transfers);

// Of send, recv and recv-any. `peer` is not checked for recv-any.
Status check_transfer(const Communicator& comm, const void* buffer, size_t count,
                      uniDataType_t type, int peer, const char* buffer_name);

// The scalar of a pre-multiplied sum, of a float type.
Status read_scalar(const void* scalar, uniDataType_t type, double* value);

}  // namespace unisono
