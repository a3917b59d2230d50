// How each of our collectives becomes NCCL's calls. All within a group of NCCL's, so that those of
// several calls are one.
#include "transports/nccl/nccl_provider.h"
#include "transports/nccl/words.h"

namespace unisono::nccl {

// One call's words in NCCL's.
struct NcclProvider::Words {
  NcclType type;
  NcclOp op;
  Stream* stream;
};

namespace {

// Rank r's block of the buffer that holds all.
struct Block {
  std::byte* data;
  uint64_t count;
};

Block block_of(const DeviceCall& call, const void* base, int32_t r) {
  const auto index = static_cast<size_t>(r);
  const bool equal = call.lengths == nullptr;
  const uint64_t offset = equal ? call.count * index : (*call.offsets)[index];
  auto* const bytes = static_cast<std::byte*>(const_cast<void*>(base));
  return {bytes == nullptr ? nullptr : bytes + offset * type_bytes(call.type),
          equal ? call.count : (*call.lengths)[index]};
}

}  // namespace

Status NcclProvider::collective(const DeviceCall& call, DeviceQueue queue) {
  const Words words{type_of(call.type), kSum, static_cast<Stream*>(queue)};
  switch (call.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kReduceScatter:
      return reduction(call, words);
    case Collective::kBroadcast:
      return check(f_.ncclBroadcast(call.send, call.recv, call.count, words.type, call.root, comm_,
                                    words.stream),
                   "ncclBroadcast");
    case Collective::kBarrier:
      return check(f_.ncclAllReduce(scratch_, scratch_, 1, kInt32, kSum, comm_, words.stream),
                   "ncclAllReduce");
    default:
      return exchange(call, words);
  }
}

Status NcclProvider::reduction(const DeviceCall& call, const Words& given) {
  Words words = given;
  if (call.op == RedOp::kPreMulSum) {
    const auto found = ops_.find(call.op_handle);
    if (found == ops_.end()) {
      return error(Code::kInternalError, "op: {} was not made here", call.op_handle);
    }
    words.op = found->second;
  } else {
    TRY(supports(call));
    words.op = *op_of(call.op, call.type);
  }
  if (call.collective == Collective::kAllReduce) {
    return check(f_.ncclAllReduce(call.send, call.recv, call.count, words.type, words.op, comm_,
                                  words.stream),
                 "ncclAllReduce");
  }
  if (call.collective == Collective::kReduce) {
    return check(f_.ncclReduce(call.send, call.recv, call.count, words.type, words.op, call.root,
                               comm_, words.stream),
                 "ncclReduce");
  }
  if (call.lengths != nullptr) return reduce_scatter_v(call, words);
  return check(f_.ncclReduceScatter(call.send, call.recv, call.count, words.type, words.op, comm_,
                                    words.stream),
               "ncclReduceScatter");
}

Status NcclProvider::exchange(const DeviceCall& call, const Words& words) {
  switch (call.collective) {
    case Collective::kAllGather:
      if (call.lengths != nullptr) return all_gather_v(call, words);
      return check(
          f_.ncclAllGather(call.send, call.recv, call.count, words.type, comm_, words.stream),
          "ncclAllGather");
    case Collective::kGather:
      return to_root(call, words);
    case Collective::kScatter:
      return from_root(call, words);
    default:
      return all_to_all(call, words);
  }
}

Status NcclProvider::all_gather_v(const DeviceCall& call, const Words& words) {
  for (int32_t r = 0; r < ranks_; r++) {
    const Block block = block_of(call, call.recv, r);
    if (block.count == 0) continue;
    const void* const send = r == rank_ ? call.send : block.data;
    TRY(check(f_.ncclBroadcast(send, block.data, block.count, words.type, r, comm_, words.stream),
              "ncclBroadcast"));
  }
  return {};
}

Status NcclProvider::reduce_scatter_v(const DeviceCall& call, const Words& words) {
  for (int32_t r = 0; r < ranks_; r++) {
    const Block block = block_of(call, call.send, r);
    if (block.count == 0) continue;
    TRY(check(f_.ncclReduce(block.data, r == rank_ ? call.recv : nullptr, block.count, words.type,
                            words.op, r, comm_, words.stream),
              "ncclReduce"));
  }
  return {};
}

Status NcclProvider::to_root(const DeviceCall& call, const Words& words) {
  if (f_.ncclGather != nullptr && call.lengths == nullptr) {
    return check(
        f_.ncclGather(call.send, call.recv, call.count, words.type, call.root, comm_, words.stream),
        "ncclGather");
  }
  const uint64_t mine = block_of(call, nullptr, rank_).count;
  const bool in_place = rank_ == call.root && block_of(call, call.recv, rank_).data == call.send;
  if (mine != 0 && !in_place) {
    TRY(check(f_.ncclSend(call.send, mine, words.type, call.root, comm_, words.stream),
              "ncclSend"));
  }
  for (int32_t r = 0; rank_ == call.root && r < ranks_; r++) {
    const Block block = block_of(call, call.recv, r);
    if (block.count == 0 || (r == rank_ && in_place)) continue;
    TRY(check(f_.ncclRecv(block.data, block.count, words.type, r, comm_, words.stream),
              "ncclRecv"));
  }
  return {};
}

Status NcclProvider::from_root(const DeviceCall& call, const Words& words) {
  if (f_.ncclScatter != nullptr && call.lengths == nullptr) {
    return check(f_.ncclScatter(call.send, call.recv, call.count, words.type, call.root, comm_,
                                words.stream),
                 "ncclScatter");
  }
  const uint64_t mine = block_of(call, nullptr, rank_).count;
  const bool in_place = rank_ == call.root && block_of(call, call.send, rank_).data == call.recv;
  for (int32_t r = 0; rank_ == call.root && r < ranks_; r++) {
    const Block block = block_of(call, call.send, r);
    if (block.count == 0 || (r == rank_ && in_place)) continue;
    TRY(check(f_.ncclSend(block.data, block.count, words.type, r, comm_, words.stream),
              "ncclSend"));
  }
  if (mine == 0 || in_place) return {};
  return check(f_.ncclRecv(call.recv, mine, words.type, call.root, comm_, words.stream),
               "ncclRecv");
}

Status NcclProvider::all_to_all(const DeviceCall& call, const Words& words) {
  if (f_.ncclAlltoAll != nullptr) {
    return check(f_.ncclAlltoAll(call.send, call.recv, call.count, words.type, comm_, words.stream),
                 "ncclAlltoAll");
  }
  if (call.count == 0) return {};
  for (int32_t r = 0; r < ranks_; r++) {
    const std::byte* const out = block_of(call, call.send, r).data;
    std::byte* const in = block_of(call, call.recv, r).data;
    TRY(check(f_.ncclSend(out, call.count, words.type, r, comm_, words.stream), "ncclSend"));
    TRY(check(f_.ncclRecv(in, call.count, words.type, r, comm_, words.stream), "ncclRecv"));
  }
  return {};
}

Status NcclProvider::transfer(const DeviceTransfer& transfer, DeviceQueue queue) {
  if (transfer.count == 0) return {};  // both sides know
  const auto stream = static_cast<Stream*>(queue);
  const NcclType type = type_of(transfer.type);
  if (transfer.receive) {
    return check(f_.ncclRecv(transfer.data, transfer.count, type, transfer.peer, comm_, stream),
                 "ncclRecv");
  }
  return check(f_.ncclSend(transfer.data, transfer.count, type, transfer.peer, comm_, stream),
               "ncclSend");
}

}  // namespace unisono::nccl
