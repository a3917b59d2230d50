// DeviceStream: a device's queue of work as a uniStream_t (uniStreamWrapCuda), and what became of
// the work that this library put there.
#pragma once

#include <memory>
#include <mutex>

#include "base/status.h"
#include "transports/collective_provider.h"

namespace unisono {

class DeviceStream {
 public:
  // The queue stays the caller's. Fails where this machine has no such device library.
  static Result<std::shared_ptr<DeviceStream>> wrap(const char* device, DeviceQueue queue);
  DeviceStream(DeviceRuntime& runtime, DeviceQueue queue) : runtime_(runtime), queue_(queue) {}

  DeviceQueue queue() const { return queue_; }
  // Waits until the queue is empty (also of work that is not ours, which nobody limits), or work of
  // ours on it has failed; returns the first error since the last synchronize.
  Status synchronize();
  Result<bool> idle();
  // Keeps the first error. Any thread.
  void note(const Status& status);

 private:
  bool failed() const;
  DeviceRuntime& runtime_;
  const DeviceQueue queue_;
  mutable std::mutex mutex_;
  Status error_;
};

}  // namespace unisono
