#include "comm/device_stream.h"

#include <utility>

#include "base/env.h"
#include "comm/device_link.h"

namespace unisono {

Result<std::shared_ptr<DeviceStream>> DeviceStream::wrap(const char* device, DeviceQueue queue) {
  TRY_ASSIGN(DeviceRuntime * runtime, find_provider(device)->runtime());
  auto stream = std::make_shared<DeviceStream>(*runtime, queue);
  TRY(stream->idle().status());  // or every later call would fail: no device, no such queue
  return stream;
}

void DeviceStream::note(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (error_.ok()) error_ = status;
}

bool DeviceStream::failed() const {
  const std::lock_guard lock(mutex_);
  return !error_.ok();
}

Result<bool> DeviceStream::idle() {
  return runtime_.idle(queue_);
}

Status DeviceStream::synchronize() {
  Pace pace(real_env());
  while (!failed()) {
    TRY_ASSIGN(const bool is_idle, idle());
    if (is_idle) break;
    pace.wait();
  }
  const std::lock_guard lock(mutex_);
  return std::exchange(error_, Status());
}

}  // namespace unisono
