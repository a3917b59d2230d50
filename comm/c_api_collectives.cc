// The collectives and point-to-point calls of unisono.h: check, then issue.
#include "comm/arguments.h"
#include "comm/device_calls.h"
#include "comm/express.h"
#include "comm/group.h"
#include "comm/handles.h"

using unisono::Collective;
using unisono::RawCall;
using unisono::Status;

namespace unisono {
namespace {

Stream* queue_of(uniStream_t stream) {
  return stream == nullptr ? nullptr : &stream->stream;
}

Status issue(const RawCall& raw, uniComm_t comm, uniStream_t stream) {
  TRY(check_comm(comm));
  Call call;
  TRY(check_stream(*comm->communicator, queue_of(stream)));
  TRY(check_call(*comm->communicator, raw, &call));
  TRY(check_device_call(*comm->communicator, call));
  return issue_collective(*comm->communicator, call, queue_of(stream));
}

[[gnu::noinline]] uniResult_t collective(const RawCall& raw, uniComm_t comm, uniStream_t stream) {
  const Status status = issue(raw, comm, stream);
  if (__builtin_expect(status.ok(), 1)) return uniSuccess;
  group_note(status);
  return report_call(status, collective_name(raw.collective));
}

// The v-variants.
uniResult_t varying(const char* name, const RawCall& raw, const RawBlocks& blocks, uniComm_t comm,
                    uniStream_t stream) {
  const Status status = [&]() -> Status {
    TRY(check_comm(comm));
    Call call;
    TRY(check_stream(*comm->communicator, queue_of(stream)));
    TRY(check_varying(*comm->communicator, raw, blocks, &call));
    TRY(check_device_call(*comm->communicator, call));
    return issue_collective(*comm->communicator, call, queue_of(stream));
  }();
  if (status.ok()) return uniSuccess;
  group_note(status);
  return report_call(status, name);
}

Status issue_pair(const Transfer& transfer, uniDataType_t type, int checked_peer,
                  const char* buffer, uniComm_t comm, uniStream_t stream) {
  TRY(check_comm(comm));
  TRY(check_stream(*comm->communicator, queue_of(stream)));
  TRY(check_transfer(*comm->communicator, transfer.data, transfer.count, type, checked_peer,
                     buffer));
  if (transfer.peer == kAnySource && comm->communicator->device() != nullptr) {
    return error(Code::kInvalidUsage,
                 "comm: a receive from any rank needs config.device = \"cpu\"");
  }
  if (transfer.peer == comm->communicator->rank() && !group_open()) {
    // Alone it would wait for its other half for ever.
    return error(Code::kInvalidArgument, "peer: is this rank itself, which only a group can do");
  }
  Transfer checked = transfer;
  checked.type = static_cast<DataType>(type);
  return issue_transfer(*comm->communicator, checked, queue_of(stream));
}

uniResult_t pair_call(const char* name, const Transfer& transfer, uniDataType_t type,
                      int checked_peer, const char* buffer, uniComm_t comm, uniStream_t stream) {
  const Status status = issue_pair(transfer, type, checked_peer, buffer, comm, stream);
  if (status.ok()) return uniSuccess;
  group_note(status);
  return report_call(status, name);
}

}  // namespace
}  // namespace unisono

uniResult_t uniAllReduce(const void* send, void* recv, size_t count, uniDataType_t type,
                         uniRedOp_t op, uniComm_t comm, uniStream_t stream) {
  if (stream == nullptr) {
    const int result = unisono::express_all_reduce(send, recv, count, type, op, comm);
    if (result != unisono::kElsewhere) return static_cast<uniResult_t>(result);
  }
  return unisono::collective({Collective::kAllReduce, send, recv, count, type, op, -1}, comm,
                             stream);
}

uniResult_t uniReduce(const void* send, void* recv, size_t count, uniDataType_t type, uniRedOp_t op,
                      int root, uniComm_t comm, uniStream_t stream) {
  return unisono::collective({Collective::kReduce, send, recv, count, type, op, root}, comm,
                             stream);
}

uniResult_t uniBroadcast(const void* send, void* recv, size_t count, uniDataType_t type, int root,
                         uniComm_t comm, uniStream_t stream) {
  return unisono::collective({Collective::kBroadcast, send, recv, count, type, uniSum, root}, comm,
                             stream);
}

uniResult_t uniAllGather(const void* send, void* recv, size_t count, uniDataType_t type,
                         uniComm_t comm, uniStream_t stream) {
  return unisono::collective({Collective::kAllGather, send, recv, count, type, uniSum, -1}, comm,
                             stream);
}

uniResult_t uniReduceScatter(const void* send, void* recv, size_t count, uniDataType_t type,
                             uniRedOp_t op, uniComm_t comm, uniStream_t stream) {
  return unisono::collective({Collective::kReduceScatter, send, recv, count, type, op, -1}, comm,
                             stream);
}

uniResult_t uniGather(const void* send, void* recv, size_t count, uniDataType_t type, int root,
                      uniComm_t comm, uniStream_t stream) {
  return unisono::collective({Collective::kGather, send, recv, count, type, uniSum, root}, comm,
                             stream);
}

uniResult_t uniScatter(const void* send, void* recv, size_t count, uniDataType_t type, int root,
                       uniComm_t comm, uniStream_t stream) {
  return unisono::collective({Collective::kScatter, send, recv, count, type, uniSum, root}, comm,
                             stream);
}

uniResult_t uniAllToAll(const void* send, void* recv, size_t count, uniDataType_t type,
                        uniComm_t comm, uniStream_t stream) {
  return unisono::collective({Collective::kAllToAll, send, recv, count, type, uniSum, -1}, comm,
                             stream);
}

uniResult_t uniAllGatherV(const void* send, void* recv, const size_t* counts, const size_t* displs,
                          uniDataType_t type, uniComm_t comm, uniStream_t stream) {
  return unisono::varying("all_gather_v", {Collective::kAllGather, send, recv, 0, type, uniSum, -1},
                          {counts, displs}, comm, stream);
}

uniResult_t uniReduceScatterV(const void* send, void* recv, const size_t* counts,
                              const size_t* displs, uniDataType_t type, uniRedOp_t op,
                              uniComm_t comm, uniStream_t stream) {
  return unisono::varying("reduce_scatter_v",
                          {Collective::kReduceScatter, send, recv, 0, type, op, -1},
                          {counts, displs}, comm, stream);
}

uniResult_t uniGatherV(const void* send, void* recv, const size_t* counts, const size_t* displs,
                       uniDataType_t type, int root, uniComm_t comm, uniStream_t stream) {
  return unisono::varying("gather_v", {Collective::kGather, send, recv, 0, type, uniSum, root},
                          {counts, displs}, comm, stream);
}

uniResult_t uniScatterV(const void* send, void* recv, const size_t* counts, const size_t* displs,
                        uniDataType_t type, int root, uniComm_t comm, uniStream_t stream) {
  return unisono::varying("scatter_v", {Collective::kScatter, send, recv, 0, type, uniSum, root},
                          {counts, displs}, comm, stream);
}

uniResult_t uniAllToAllV(const void* send, const size_t* sendcounts, const size_t* sdispls,
                         void* recv, const size_t* recvcounts, const size_t* rdispls,
                         uniDataType_t type, uniComm_t comm, uniStream_t stream) {
  using unisono::Transfer;
  std::vector<Transfer> transfers;
  const Status status = [&]() -> Status {
    TRY(unisono::check_comm(comm));
    const unisono::Communicator& own = *comm->communicator;
    TRY(unisono::check_stream(own, unisono::queue_of(stream)));
    TRY(unisono::check_exchange(own, send, {sendcounts, sdispls}, type, false, &transfers));
    TRY(unisono::check_exchange(own, recv, {recvcounts, rdispls}, type, true, &transfers));
    TRY(unisono::check_apart(transfers));
    return unisono::issue_transfers(*comm->communicator, transfers, unisono::queue_of(stream));
  }();
  if (status.ok()) return uniSuccess;
  unisono::group_note(status);
  return unisono::report_call(status, "all_to_all_v");
}

uniResult_t uniBarrier(uniComm_t comm, uniStream_t stream) {
  return unisono::collective({Collective::kBarrier, nullptr, nullptr, 0, uniUint8, uniSum, -1},
                             comm, stream);
}

uniResult_t uniSend(const void* send, size_t count, uniDataType_t type, int peer, uniComm_t comm,
                    uniStream_t stream) {
  unisono::Transfer transfer;
  transfer.data = static_cast<std::byte*>(const_cast<void*>(send));
  transfer.count = count;
  transfer.peer = peer;
  return unisono::pair_call("send", transfer, type, peer, "send", comm, stream);
}

uniResult_t uniRecv(void* recv, size_t count, uniDataType_t type, int peer, uniComm_t comm,
                    uniStream_t stream) {
  unisono::Transfer transfer;
  transfer.receive = true;
  transfer.data = static_cast<std::byte*>(recv);
  transfer.count = count;
  transfer.peer = peer;
  return unisono::pair_call("recv", transfer, type, peer, "recv", comm, stream);
}

uniResult_t uniRecvAny(void* recv, size_t count, uniDataType_t type, int* source, uniComm_t comm,
                       uniStream_t stream) {
  unisono::Transfer transfer;
  transfer.receive = true;
  transfer.data = static_cast<std::byte*>(recv);
  transfer.count = count;
  transfer.peer = unisono::kAnySource;
  transfer.source = source;
  return unisono::pair_call("recv_any", transfer, type, 0, "recv", comm, stream);
}

uniResult_t uniGroupStart(void) {
  const Status status = unisono::not_in_forked_child();
  if (status.ok()) unisono::group_start();
  return unisono::report(status);
}

uniResult_t uniGroupEnd(void) {
  const Status status = unisono::not_in_forked_child();
  return unisono::report(status.ok() ? unisono::group_end() : status);
}

uniResult_t uniRedOpCreatePreMulSum(uniRedOp_t* op, const void* scalar, uniDataType_t type,
                                    uniComm_t comm) {
  const Status status = [&]() -> Status {
    TRY(unisono::check_comm(comm));
    if (op == nullptr) return unisono::error(unisono::Code::kInvalidArgument, "op: is null");
    if (scalar == nullptr)
      return unisono::error(unisono::Code::kInvalidArgument, "scalar: is null");
    double value = 0;
    TRY(unisono::read_scalar(scalar, type, &value));
    TRY_ASSIGN(const uint32_t handle, comm->communicator->create_premul_sum(
                                          scalar, value, static_cast<unisono::DataType>(type)));
    *op = static_cast<uniRedOp_t>(handle);
    return {};
  }();
  return unisono::report(status);
}

uniResult_t uniRedOpDestroy(uniRedOp_t op, uniComm_t comm) {
  Status status = unisono::check_comm(comm);
  if (status.ok()) status = comm->communicator->destroy_op(static_cast<uint32_t>(op));
  return unisono::report(status);
}
