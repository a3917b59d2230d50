#include "transports/nccl/nccl_provider.h"

#include "transports/nccl/words.h"

namespace unisono::nccl {
namespace {

constexpr size_t kScratchBytes = 64;

}  // namespace

Result<std::unique_ptr<CollectiveProvider>> make_nccl_provider(const Library& library,
                                                               const UniqueId& id, int32_t ranks,
                                                               int32_t rank) {
  auto made = std::make_unique<NcclProvider>(library, ranks, rank);
  TRY(made->start(id));
  return std::unique_ptr<CollectiveProvider>(std::move(made));
}

// In progress is no failure: progress() tells of it.
Status NcclProvider::check(NcclResult result, const char* call) const {
  return result == kInProgress ? ok_status() : library_.check(result, call, comm_);
}

Status NcclProvider::make_scratch() {
  return library_.check(f_.cudaMalloc(&scratch_, kScratchBytes), "cudaMalloc");
}

Status NcclProvider::free_scratch() {
  if (scratch_ == nullptr) return {};
  return library_.check(f_.cudaFree(std::exchange(scratch_, nullptr)), "cudaFree");
}

Status NcclProvider::start(const UniqueId& id) {
  TRY(make_scratch());
  Config config;
  return check(f_.ncclCommInitRankConfig(&comm_, ranks_, id, rank_, &config),
               "ncclCommInitRankConfig");
}

Status NcclProvider::progress() {
  if (comm_ == nullptr) return {};
  NcclResult state = kSuccess;
  TRY(check(f_.ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError"));
  return library_.check(state, "NCCL", comm_);
}

Status NcclProvider::supports(const DeviceCall& call) const {
  if (!has_op(call.collective) || call.op == RedOp::kPreMulSum) return {};
  if (op_of(call.op, call.type)) return {};
  return error(Code::kInvalidArgument, "op: NCCL has no {} of {}", op_name(call.op),
               type_name(call.type));
}

Status NcclProvider::create_op(uint32_t handle, const void* scalar, DataType type) {
  NcclOp op = kSum;
  TRY(check(f_.ncclRedOpCreatePreMulSum(&op, const_cast<void*>(scalar), type_of(type),
                                        kHostImmediate, comm_),
            "ncclRedOpCreatePreMulSum"));
  ops_.emplace(handle, op);
  return {};
}

Status NcclProvider::destroy_op(uint32_t handle) {
  const auto found = ops_.find(handle);
  if (found == ops_.end()) return {};
  const NcclOp op = found->second;
  ops_.erase(found);
  return check(f_.ncclRedOpDestroy(op, comm_), "ncclRedOpDestroy");
}

Result<void*> NcclProvider::register_memory(void* pointer, size_t bytes) {
  void* handle = nullptr;
  if (f_.ncclCommRegister == nullptr || f_.ncclCommDeregister == nullptr) return handle;
  TRY(check(f_.ncclCommRegister(comm_, pointer, bytes, &handle), "ncclCommRegister"));
  return handle;
}

Status NcclProvider::deregister_memory(void* handle) {
  if (handle == nullptr) return {};
  return check(f_.ncclCommDeregister(comm_, handle), "ncclCommDeregister");
}

Result<std::unique_ptr<CollectiveProvider>> NcclProvider::split(int32_t color, int32_t key,
                                                                int32_t ranks, int32_t rank) {
  auto child = std::make_unique<NcclProvider>(library_, ranks, rank);
  if (color >= 0) TRY(child->make_scratch());
  Config config;
  const int word = color < 0 ? kNoColor : color;
  TRY(check(f_.ncclCommSplit(comm_, word, key, &child->comm_, &config), "ncclCommSplit"));
  return std::unique_ptr<CollectiveProvider>(std::move(child));
}

Status NcclProvider::finalize() {
  for (const auto& [handle, op] : std::exchange(ops_, {})) {
    TRY(check(f_.ncclRedOpDestroy(op, comm_), "ncclRedOpDestroy"));
  }
  if (comm_ == nullptr) return {};
  return check(f_.ncclCommFinalize(comm_), "ncclCommFinalize");
}

Status NcclProvider::destroy() {
  Status status;
  if (comm_ != nullptr) {
    status = check(f_.ncclCommDestroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
  }
  if (Status freed = free_scratch(); status.ok()) status = freed;
  return status;
}

Status NcclProvider::abort() {
  ops_.clear();
  Status status;
  if (comm_ != nullptr) {
    status = check(f_.ncclCommAbort(std::exchange(comm_, nullptr)), "ncclCommAbort");
  }
  if (Status freed = free_scratch(); status.ok()) status = freed;
  return status;
}

}  // namespace unisono::nccl
