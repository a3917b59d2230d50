#include "comm/arguments.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "comm/reduce/half.h"

namespace unisono {
namespace {

Status check_type(unsigned type) {
  if (type < static_cast<unsigned>(kDataTypes)) return {};
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

Status check_root(const Communicator& comm, const RawCall& raw, Call* call) {
  if (!has_root(raw.collective)) return {};
  if (raw.root < 0 || raw.root >= comm.ranks()) {
    return error(Code::kInvalidArgument, "root: {} is no rank of {}", raw.root, comm.ranks());
  }
  call->root = raw.root;
  return {};
}

// Which buffers this rank uses.
bool sends(const Communicator& comm, const RawCall& raw) {
  const bool by_root =
      raw.collective == Collective::kBroadcast || raw.collective == Collective::kScatter;
  return !by_root || raw.root == comm.rank();
}
bool receives(const Communicator& comm, const RawCall& raw) {
  const bool by_root =
      raw.collective == Collective::kReduce || raw.collective == Collective::kGather;
  return !by_root || raw.root == comm.rank();
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

// Every block, and their sum, within the address space.
Status check_blocks(const Communicator& comm, const RawBlocks& blocks, const char* counts_name,
                    const char* displs_name, uint64_t size) {
  if (blocks.counts == nullptr) return error(Code::kInvalidArgument, "{}: is null", counts_name);
  const uint64_t most = static_cast<uint64_t>(PTRDIFF_MAX) / size;
  uint64_t total = 0;
  for (size_t r = 0; r < static_cast<size_t>(comm.ranks()); r++) {
    const uint64_t count = blocks.counts[r];
    const uint64_t offset = blocks.displs == nullptr ? 0 : blocks.displs[r];
    if (count > most || total + count > most) {
      return error(Code::kInvalidArgument, "{}: up to rank {} they overflow the address space",
                   counts_name, r);
    }
    if (offset > most - count) {
      return error(Code::kInvalidArgument, "{}: rank {}'s block overflows the address space",
                   displs_name, r);
    }
    total += count;
  }
  return {};
}

// Of blocks that are written.
Status check_disjoint(const BlockTable& table, const char* displs_name) {
  if (table.packed) return {};
  std::vector<size_t> by_offset(table.lengths.size());
  std::iota(by_offset.begin(), by_offset.end(), size_t{0});
  std::erase_if(by_offset, [&](size_t b) { return table.lengths[b] == 0; });
  std::sort(by_offset.begin(), by_offset.end(),
            [&](size_t a, size_t b) { return table.offsets[a] < table.offsets[b]; });
  for (size_t i = 1; i < by_offset.size(); i++) {
    const size_t before = by_offset[i - 1], next = by_offset[i];
    if (table.offsets[before] + table.lengths[before] > table.offsets[next]) {
      return error(Code::kInvalidArgument, "{}: the blocks of ranks {} and {} overlap", displs_name,
                   std::min(before, next), std::max(before, next));
    }
  }
  return {};
}

// The short buffer may be exactly this rank's block of the long one, and may touch no other.
Status check_varying_overlap(const Communicator& comm, const Call& call, bool many_in) {
  if (call.send == nullptr || call.recv == nullptr) return {};
  const BlockTable& table = *call.blocks;
  const auto own = static_cast<size_t>(comm.rank());
  const uint64_t size = type_bytes(call.type);
  const auto whole = reinterpret_cast<uintptr_t>(many_in ? call.send : call.recv);
  const auto piece = reinterpret_cast<uintptr_t>(many_in ? call.recv : call.send);
  const uintptr_t piece_end = piece + table.lengths[own] * size;
  for (size_t b = 0; b < table.lengths.size(); b++) {
    if (table.lengths[b] == 0) continue;
    const uintptr_t begin = whole + table.offsets[b] * size;
    const uintptr_t end = begin + table.lengths[b] * size;
    if (piece >= end || begin >= piece_end || (b == own && piece == begin)) continue;
    return error(Code::kInvalidArgument,
                 "recv: partly overlaps send; the in-place form has exact offsets");
  }
  return {};
}

}  // namespace

Status check_call(const Communicator& comm, const RawCall& raw, Call* call) {
  TRY(check_type(raw.type));
  call->collective = raw.collective;
  call->type = static_cast<DataType>(raw.type);
  call->count = raw.count;
  const auto ranks = static_cast<uint64_t>(comm.ranks());
  TRY(check_root(comm, raw, call));
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
  call->send = sends(comm, raw) ? raw.send : nullptr;
  call->recv = receives(comm, raw) ? raw.recv : nullptr;
  if (raw.count == 0) return {};
  if (sends(comm, raw) && raw.send == nullptr)
    return error(Code::kInvalidArgument, "send: is null");
  if (receives(comm, raw) && raw.recv == nullptr)
    return error(Code::kInvalidArgument, "recv: is null");
  return check_overlap(comm, raw, *call, extent, raw.count * type_bytes(call->type));
}

Status check_varying(const Communicator& comm, const RawCall& raw, const RawBlocks& blocks,
                     Call* call) {
  TRY(check_type(raw.type));
  call->collective = raw.collective;
  call->type = static_cast<DataType>(raw.type);
  TRY(check_root(comm, raw, call));
  if (has_op(raw.collective)) TRY(check_op(comm, raw, call));
  TRY(check_blocks(comm, blocks, "counts", "displs", type_bytes(call->type)));
  const auto ranks = static_cast<size_t>(comm.ranks());
  call->blocks = make_block_table(blocks.counts, blocks.displs, ranks);
  call->count = call->blocks->total;
  call->send = sends(comm, raw) ? raw.send : nullptr;
  call->recv = receives(comm, raw) ? raw.recv : nullptr;
  const uint64_t mine = blocks.counts[static_cast<size_t>(comm.rank())];
  const bool many_in =
      raw.collective == Collective::kReduceScatter || raw.collective == Collective::kScatter;
  const uint64_t in = many_in ? call->count : mine, out = many_in ? mine : call->count;
  if (sends(comm, raw) && in != 0 && raw.send == nullptr)
    return error(Code::kInvalidArgument, "send: is null");
  if (receives(comm, raw) && out != 0 && raw.recv == nullptr)
    return error(Code::kInvalidArgument, "recv: is null");
  if (!many_in && call->recv != nullptr) TRY(check_disjoint(*call->blocks, "displs"));
  return check_varying_overlap(comm, *call, many_in);
}

Status check_exchange(const Communicator& comm, const void* buffer, const RawBlocks& blocks,
                      uniDataType_t type, bool receive, std::vector<Transfer>* transfers) {
  TRY(check_type(type));
  const uint64_t size = type_bytes(static_cast<DataType>(type));
  TRY(check_blocks(comm, blocks, receive ? "recvcounts" : "sendcounts",
                   receive ? "rdispls" : "sdispls", size));
  const auto ranks = static_cast<size_t>(comm.ranks());
  const auto table = make_block_table(blocks.counts, blocks.displs, ranks);
  if (table->total != 0 && buffer == nullptr)
    return error(Code::kInvalidArgument, "{}: is null", receive ? "recv" : "send");
  if (receive) TRY(check_disjoint(*table, "rdispls"));
  auto* base = static_cast<std::byte*>(const_cast<void*>(buffer));
  for (size_t r = 0; r < ranks; r++) {
    Transfer transfer;
    transfer.receive = receive;
    transfer.data = base == nullptr ? nullptr : base + table->offsets[r] * size;
    transfer.count = table->lengths[r];
    transfer.type = static_cast<DataType>(type);
    transfer.peer = static_cast<int32_t>(r);
    transfers->push_back(transfer);
  }
  return {};
}

Status check_apart(const std::vector<Transfer>& transfers) {
  struct Range {
    const std::byte *begin, *end;
    bool receive;
    int32_t peer;
  };
  std::vector<Range> ranges;
  for (const Transfer& t : transfers) {
    if (t.count == 0) continue;
    ranges.push_back({t.data, t.data + t.count * type_bytes(t.type), t.receive, t.peer});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  // The farthest end so far, of each side: sent blocks may overlap each other.
  const std::byte* reached[2] = {nullptr, nullptr};
  for (const Range& range : ranges) {
    if (range.begin < reached[range.receive ? 0 : 1]) {
      return error(Code::kInvalidArgument,
                   "recv: overlaps send at rank {}'s block (all_to_all_v has no in-place form)",
                   range.peer);
    }
    const std::byte*& end = reached[range.receive ? 1 : 0];
    end = std::max(end, range.end);
  }
  return {};
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
