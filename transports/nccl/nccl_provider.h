// One rank's NCCL communicator.
#pragma once

#include <map>

#include "transports/collective_provider.h"
#include "transports/nccl/library.h"

namespace unisono::nccl {

// Begins to meet the other ranks; progress() says when they have come.
Result<std::unique_ptr<CollectiveProvider>> make_nccl_provider(const Library& library,
                                                               const UniqueId& id, int32_t ranks,
                                                               int32_t rank);

class NcclProvider : public CollectiveProvider {
 public:
  NcclProvider(const Library& library, int32_t ranks, int32_t rank)
      : library_(library), f_(library.functions()), ranks_(ranks), rank_(rank) {}
  ~NcclProvider() override { (void)abort(); }
  Status start(const UniqueId& id);

  Status progress() override;
  Status supports(const DeviceCall& call) const override;
  Status collective(const DeviceCall& call, DeviceQueue queue) override;
  Status transfer(const DeviceTransfer& transfer, DeviceQueue queue) override;
  Status create_op(uint32_t handle, const void* scalar, DataType type) override;
  Status destroy_op(uint32_t handle) override;
  Result<void*> register_memory(void* pointer, size_t bytes) override;
  Status deregister_memory(void* handle) override;
  Result<std::unique_ptr<CollectiveProvider>> split(int32_t color, int32_t key, int32_t ranks,
                                                    int32_t rank) override;
  Status finalize() override;
  Status destroy() override;
  Status abort() override;

 private:
  struct Words;  // one call's in NCCL's
  Status check(NcclResult result, const char* call) const;
  Status reduction(const DeviceCall& call, const Words& words);
  Status exchange(const DeviceCall& call, const Words& words);
  Status all_gather_v(const DeviceCall& call, const Words& words);
  Status reduce_scatter_v(const DeviceCall& call, const Words& words);
  Status to_root(const DeviceCall& call, const Words& words);
  Status from_root(const DeviceCall& call, const Words& words);
  Status all_to_all(const DeviceCall& call, const Words& words);
  Status make_scratch();
  Status free_scratch();

  const Library& library_;
  const Functions& f_;
  int32_t ranks_, rank_;
  Comm* comm_ = nullptr;
  void* scratch_ = nullptr;  // a few bytes of the device: what a barrier reduces
  std::map<uint32_t, NcclOp> ops_;
};

}  // namespace unisono::nccl
