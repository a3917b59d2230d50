#include "comm/arguments.h"

#include <cstring>

#include "comm/reduce/half.h"

namespace unisono {
namespace {

Status check_type(uniDataType_t type) {
  if (static_cast<unsigned>(type) < static_cast<unsigned>(kDataTypes)) return {};
  return error(Code::kInvalidArgument, "type: {} is no data type", static_cast<int>(type));
}

Status check_op(const Communicator& comm, const RawCall& raw, Call* call) {
  const auto value = static_cast<unsigned>(raw.op);
  call->op_handle = value;
  if (value < uniNumOps) {
    call->op = static_cast<RedOp>(value);
  } else {
    call->op = RedOp::kPreMulSum;
    TRY(comm.op_scalar(value, call->type, &call->scalar));
  }
  if (op_allowed(call->op, call->type)) return {};
  return error(Code::kInvalidArgument, "op: {} is not defined for {}", op_name(call->op),
               type_name(call->type));
}

// How many times `count` elements each buffer holds.
struct Extent {
  uint64_t send = 1, recv = 1;
};

Extent extent_of(Collective collective, uint64_t ranks) {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kGather:
      return {1, ranks};
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return {ranks, 1};
    case Collective::kAllToAll:
      return {ranks, ranks};
    default:
      return {1, 1};
  }
}

// Offsets of the one allowed aliasing: send + send_block*count == recv + recv_block*count.
bool in_place(const RawCall& raw, const Call& call, uint64_t rank, uint64_t one_bytes) {
  const auto* send = static_cast<const char*>(call.send);
  const auto* recv = static_cast<const char*>(call.recv);
  switch (raw.collective) {
    case Collective::kAllGather:
    case Collective::kGather:
      return send == recv + rank * one_bytes;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return recv == send + rank * one_bytes;
    case Collective::kAllToAll:
      return false;
    default:
      return send == recv;
  }
}

Status check_overlap(const Communicator& comm, const RawCall& raw, const Call& call,
                     const Extent& extent, uint64_t one_bytes) {
  if (call.send == nullptr || call.recv == nullptr || one_bytes == 0) return {};
  const auto send = reinterpret_cast<uintptr_t>(call.send);
  const auto recv = reinterpret_cast<uintptr_t>(call.recv);
  if (send >= recv + extent.recv * one_bytes || recv >= send + extent.send * one_bytes) return {};
  if (in_place(raw, call, static_cast<uint64_t>(comm.rank()), one_bytes)) return {};
  if (raw.collective == Collective::kAllToAll) {
    return error(Code::kInvalidArgument, "recv: overlaps send (all_to_all has no in-place form)");
  }
  return error(Code::kInvalidArgument,
               "recv: partly overlaps send; the in-place form has exact offsets");
}

}  // namespace

bool quick_all_reduce(const RawCall& raw, Call* call) {
  const auto type = static_cast<unsigned>(raw.type), op = static_cast<unsigned>(raw.op);
  if (raw.collective != Collective::kAllReduce || type >= static_cast<unsigned>(kDataTypes) ||
      op > uniMin || raw.send == nullptr || raw.recv == nullptr) {
    return false;
  }
  call->type = static_cast<DataType>(type);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(raw.count), type_bytes(call->type), &bytes) ||
      bytes > static_cast<uint64_t>(PTRDIFF_MAX)) {
    return false;
  }
  const auto send = reinterpret_cast<uintptr_t>(raw.send);
  const auto recv = reinterpret_cast<uintptr_t>(raw.recv);
  if (send != recv && send < recv + bytes && recv < send + bytes) return false;
  call->collective = Collective::kAllReduce;
  call->op = static_cast<RedOp>(op);
  call->op_handle = op;
  call->count = raw.count;
  call->send = raw.send;
  call->recv = raw.recv;
  return true;
}

Status check_call(const Communicator& comm, const RawCall& raw, Call* call) {
  TRY(check_type(raw.type));
  call->collective = raw.collective;
  call->type = static_cast<DataType>(raw.type);
  call->count = raw.count;
  const auto ranks = static_cast<uint64_t>(comm.ranks());
  if (has_root(raw.collective)) {
    if (raw.root < 0 || raw.root >= comm.ranks()) {
      return error(Code::kInvalidArgument, "root: {} is no rank of {}", raw.root, comm.ranks());
    }
    call->root = raw.root;
  }
  if (has_op(raw.collective)) TRY(check_op(comm, raw, call));
  const Extent extent = extent_of(raw.collective, ranks);
  uint64_t bytes = 0;  // of the longer buffer; a multiplication tells an overflow in a twentieth of
                       // a division's time
  const uint64_t blocks = std::max(extent.send, extent.recv) * type_bytes(call->type);
  if (__builtin_mul_overflow(static_cast<uint64_t>(raw.count), blocks, &bytes) ||
      bytes > static_cast<uint64_t>(PTRDIFF_MAX)) {
    return error(Code::kInvalidArgument, "count: {} elements of {} overflow the address space",
                 raw.count, type_name(call->type));
  }
  const bool at_root = !has_root(raw.collective) || raw.root == comm.rank();
  const bool sends =
      (raw.collective != Collective::kBroadcast && raw.collective != Collective::kScatter) ||
      at_root;
  const bool receives =
      (raw.collective != Collective::kReduce && raw.collective != Collective::kGather) || at_root;
  call->send = sends ? raw.send : nullptr;
  call->recv = receives ? raw.recv : nullptr;
  if (raw.count == 0) return {};
  if (sends && raw.send == nullptr) return error(Code::kInvalidArgument, "send: is null");
  if (receives && raw.recv == nullptr) return error(Code::kInvalidArgument, "recv: is null");
  return check_overlap(comm, raw, *call, extent, raw.count * type_bytes(call->type));
}

Status check_transfer(const Communicator& comm, const void* buffer, size_t count,
                      uniDataType_t type, int peer, const char* buffer_name) {
  TRY(check_type(type));
  if (peer < 0 || peer >= comm.ranks()) {
    return error(Code::kInvalidArgument, "peer: {} is no rank of {}", peer, comm.ranks());
  }
  if (count > static_cast<size_t>(PTRDIFF_MAX) / type_bytes(static_cast<DataType>(type))) {
    return error(Code::kInvalidArgument, "count: {} elements overflow the address space", count);
  }
  if (count != 0 && buffer == nullptr)
    return error(Code::kInvalidArgument, "{}: is null", buffer_name);
  return {};
}

Status read_scalar(const void* scalar, uniDataType_t type, double* value) {
  switch (type) {
    case uniFloat16:
    case uniBfloat16: {
      uint16_t bits = 0;
      std::memcpy(&bits, scalar, sizeof bits);
      *value = static_cast<double>(type == uniFloat16 ? float16_to_float(bits)
                                                      : bfloat16_to_float(bits));
      return {};
    }
    case uniFloat32: {
      float single = 0;
      std::memcpy(&single, scalar, sizeof single);
      *value = static_cast<double>(single);
      return {};
    }
    case uniFloat64:
      std::memcpy(value, scalar, sizeof *value);
      return {};
    default:
      return error(Code::kInvalidArgument, "type: a pre-multiplied sum needs a float type");
  }
}

}  // namespace unisono
