// uniBroadcastCoalesced: small tensors travel packed, large ones by themselves and in place. The
// first packet begins with a hash of the list, so that ranks whose lists differ learn it, also
// where the bytes happen to be as many.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "ddp/status.h"
#include "ddp/types.h"
#include "unisono/ddp.h"

namespace unisono::ddp {
namespace {

constexpr size_t kPacketBytes = size_t{4} << 20;
// From here on a tensor is worth a broadcast of its own more than two copies.
constexpr size_t kLargeBytes = size_t{512} << 10;

struct Tensor {
  std::byte* data;
  size_t bytes;
};

Status read_tensors(void* const* tensors, const size_t* counts, const uniDataType_t* types,
                    int tensor_count, std::vector<Tensor>* to) {
  if (tensor_count < 0) return error(uniInvalidArgument, "tensor_count: {}", tensor_count);
  if (tensor_count == 0) return {};
  if (tensors == nullptr) return error(uniInvalidArgument, "tensors: is null");
  if (counts == nullptr) return error(uniInvalidArgument, "counts: is null");
  if (types == nullptr) return error(uniInvalidArgument, "types: is null");
  for (int i = 0; i < tensor_count; i++) {
    const int type = raw_type(&types[i]);
    const size_t element = element_bytes(type);
    size_t bytes = 0;
    if (element == 0) {
      return error(uniInvalidArgument, "types[{}]: {} is no type", i, type);
    }
    if (__builtin_mul_overflow(counts[i], element, &bytes)) {
      return error(uniInvalidArgument, "counts[{}]: {} is too large", i, counts[i]);
    }
    if (tensors[i] == nullptr && bytes > 0) {
      return error(uniInvalidArgument, "tensors[{}]: is null", i);
    }
    to->push_back({static_cast<std::byte*>(tensors[i]), bytes});
  }
  return {};
}

// What a list must have in common with root's.
struct Header {
  uint64_t tensors = 0;
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a of counts and types.
  bool operator==(const Header&) const = default;
};

Header header_of(const size_t* counts, const uniDataType_t* types, int tensor_count) {
  Header header{static_cast<uint64_t>(tensor_count)};
  const auto mix = [&header](uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      header.hash = (header.hash ^ ((value >> shift) & 0xffu)) * 0x100000001b3u;
    }
  };
  for (int i = 0; i < tensor_count; i++) {
    mix(counts[i]);
    mix(static_cast<uint64_t>(types[i]));
  }
  return header;
}

// Blocks, on the caller's thread; comm is borrowed.
class Packets {
 public:
  Packets(uniComm_t comm, int root, const Header& header, size_t small_bytes)
      : comm_(comm),
        root_(root),
        header_(header),
        capacity_(std::min(kPacketBytes, small_bytes + sizeof header)),
        memory_(std::make_unique_for_overwrite<std::byte[]>(capacity_)),
        used_(sizeof header) {
    std::memcpy(memory_.get(), &header, sizeof header);
  }

  Status send_all(const std::vector<Tensor>& tensors) {
    DDP_TRY(called(uniCommUserRank(comm_, &rank_)));
    for (const Tensor& tensor : tensors) {
      if (tensor.bytes < kLargeBytes) {
        DDP_TRY(add(tensor));
        continue;
      }
      if (!is_header_sent_) DDP_TRY(send());  // nothing is overwritten before lists are compared
      DDP_TRY(broadcast(tensor.data, tensor.bytes));
    }
    return send();
  }

 private:
  Status broadcast(std::byte* data, size_t bytes) const {
    return called(uniBroadcast(data, data, bytes, uniUint8, root_, comm_, nullptr));
  }

  Status add(const Tensor& tensor) {
    if (tensor.bytes == 0) return {};
    if (tensor.bytes > capacity_ - used_) DDP_TRY(send());
    if (rank_ == root_) std::memcpy(memory_.get() + used_, tensor.data, tensor.bytes);
    packed_.push_back(tensor);
    used_ += tensor.bytes;
    return {};
  }

  Status send() {
    if (used_ == 0) return {};
    DDP_TRY(broadcast(memory_.get(), used_));
    size_t at = 0;
    if (!is_header_sent_) {
      DDP_TRY(compare_header());
      at = sizeof header_;
    }
    is_header_sent_ = true;
    for (const Tensor& tensor : packed_) {
      if (rank_ != root_) std::memcpy(tensor.data, memory_.get() + at, tensor.bytes);
      at += tensor.bytes;
    }
    packed_.clear();
    used_ = 0;
    return {};
  }

  Status compare_header() const {
    Header theirs;
    std::memcpy(&theirs, memory_.get(), sizeof theirs);
    if (theirs == header_) return {};
    (void)uniCommAbort(comm_);  // the others shall not wait for this rank
    return error(uniMismatch,
                 "rank {} has another list of tensors than root {}: {} here, {} there, or other "
                 "counts or types",
                 rank_, root_, header_.tensors, theirs.tensors);
  }

  const uniComm_t comm_;
  const int root_;
  const Header header_;
  const size_t capacity_;
  const std::unique_ptr<std::byte[]> memory_;
  size_t used_;
  int rank_ = 0;
  bool is_header_sent_ = false;
  std::vector<Tensor> packed_;
};

Status broadcast_coalesced(uniComm_t comm, void* const* tensors, const size_t* counts,
                           const uniDataType_t* types, int tensor_count, int root) {
  if (comm == nullptr) return error(uniInvalidArgument, "comm: is null");
  std::vector<Tensor> list;
  DDP_TRY(read_tensors(tensors, counts, types, tensor_count, &list));
  int ranks = 0;
  DDP_TRY(called(uniCommCount(comm, &ranks)));
  if (root < 0 || root >= ranks) {
    return error(uniInvalidArgument, "root: {} is not between 0 and {}", root, ranks - 1);
  }
  size_t small_bytes = 0;
  for (const Tensor& tensor : list) {
    if (tensor.bytes < kLargeBytes) small_bytes += tensor.bytes;
  }
  Packets packets(comm, root, header_of(counts, types, tensor_count), small_bytes);
  return packets.send_all(list);
}

}  // namespace
}  // namespace unisono::ddp

uniResult_t uniBroadcastCoalesced(uniComm_t comm, void* const* tensors, const size_t* counts,
                                  const uniDataType_t* types, int tensor_count, int root) {
  return unisono::ddp::report(
      unisono::ddp::broadcast_coalesced(comm, tensors, counts, types, tensor_count, root));
}
