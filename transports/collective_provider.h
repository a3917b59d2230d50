// CollectiveProvider: a library that takes whole collectives on device buffers (NCCL), beside the
// transports, which move bytes. Behind it comm/device_link.h puts deadlines, stalls and one error
// for all ranks.
//
// Nothing here waits: what a library cannot do at once it begins, and progress() says when it is
// done; nothing else is called before. Functions of one provider are serialised by the caller; any
// thread. A failure of any of them is final: only abort() may follow.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace unisono {

// A queue of work of a device: cudaStream_t. The null pointer is one too (the default stream).
using DeviceQueue = void*;

// A collective with the C API's words; what this rank does not use is null. A barrier has a count
// of 0.
struct DeviceCall {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUint8;
  RedOp op = RedOp::kSum;
  uint32_t op_handle = 0;  // of a pre-multiplied sum: as given to create_op
  int32_t root = -1;
  uint64_t count = 0;
  const void* send = nullptr;
  void* recv = nullptr;
  // Of a v-variant, else null: elements by rank, and where in the buffer that holds all blocks.
  const std::vector<uint64_t>*lengths = nullptr, *offsets = nullptr;
};

struct DeviceTransfer {
  bool receive = false;
  void* data = nullptr;  // only read when sending
  uint64_t count = 0;
  DataType type = DataType::kUint8;
  int32_t peer = 0;
};

// A place in a queue: whether the device has come there.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  virtual Status record(DeviceQueue queue) = 0;
  virtual Result<bool> reached() = 0;  // true when never recorded
};

// One rank's membership among the ranks of one id.
class CollectiveProvider {
 public:
  virtual ~CollectiveProvider() = default;  // aborts what was neither destroyed nor aborted
  // Ok: everything called so far is on its queue, and the library knows of no failure. kInProgress:
  // call again.
  virtual Status progress() = 0;
  // Whether the library has this call: kInvalidArgument names what it lacks. Pure.
  virtual Status supports(const DeviceCall& call) const = 0;
  // Between DeviceRuntime::group_start and group_end.
  virtual Status collective(const DeviceCall& call, DeviceQueue queue) = 0;
  virtual Status transfer(const DeviceTransfer& transfer, DeviceQueue queue) = 0;
  // `scalar` is of `type` and read at once.
  virtual Status create_op(uint32_t handle, const void* scalar, DataType type) = 0;
  virtual Status destroy_op(uint32_t handle) = 0;
  // Null handle: this library has no registration, which then is no loss but of speed.
  virtual Result<void*> register_memory(void* pointer, size_t bytes) = 0;
  virtual Status deregister_memory(void* handle) = 0;
  // All ranks call, in the same order; ranks of a color are ordered by key, then as here: the child
  // has `ranks`, this one of them is `rank`. A negative color: the child is none, to be thrown
  // away. The progress() of this one and then of the child say when it is ready.
  virtual Result<std::unique_ptr<CollectiveProvider>> split(int32_t color, int32_t key,
                                                            int32_t ranks, int32_t rank) = 0;
  virtual Status finalize() = 0;  // then progress() until ok, then destroy()
  virtual Status destroy() = 0;
  // Ends what runs on the device. Once; destroys too.
  virtual Status abort() = 0;
};

// A device library and its runtime, of the process: loaded at first use, never unloaded.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  virtual int32_t version() const = 0;       // of the library: all ranks must have the same
  virtual std::string describe() const = 0;  // "NCCL 2.28.9, CUDA runtime 13.0"
  virtual bool can_split() const = 0;
  virtual Result<int32_t> current_device() = 0;  // of this thread
  virtual Status use_device(int32_t device) = 0;
  virtual Result<int32_t> device_count() = 0;
  // On this thread's device.
  virtual Result<std::unique_ptr<DeviceMark>> make_mark() = 0;
  virtual Result<DeviceQueue> make_queue() = 0;
  virtual Status destroy_queue(DeviceQueue queue) = 0;
  virtual Result<bool> idle(DeviceQueue queue) = 0;
  // Whether work on it is being recorded into a graph: marks then say nothing.
  virtual Result<bool> capturing(DeviceQueue queue) = 0;
  // What this thread calls between them begins together. group_end also reports the calls' errors.
  virtual Status group_start() = 0;
  virtual Status group_end() = 0;
  // The bytes by which ranks find each other; a secret.
  virtual Result<std::string> make_id() = 0;
  // Of this thread's device. The result's progress() says when all ranks have come.
  virtual Result<std::unique_ptr<CollectiveProvider>> create(const std::string& id, int32_t ranks,
                                                             int32_t rank) = 0;
};

struct ProviderEntry {
  const char* device;  // uniConfig_t.device: "cuda"
  const char* name;    // "nccl"
  // Loads it, if it has not been. Or why it cannot be used here.
  Result<DeviceRuntime*> (*runtime)();
};
std::span<const ProviderEntry> provider_registry();
const ProviderEntry* find_provider(std::string_view device);  // nullptr: unknown

}  // namespace unisono
