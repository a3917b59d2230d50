// Device calls: how the calls of a communicator with a device get to its library. The one seam
// between the host's way of a call (group.cc) and the device's.
#pragma once

#include <memory>
#include <span>

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/device_stream.h"
#include "comm/pair_operation.h"
#include "comm/stream.h"

namespace unisono {

struct DeviceItem {
  Communicator* comm = nullptr;          // has a device
  std::shared_ptr<DeviceStream> stream;  // null: on a queue of the library's, until complete
  bool is_transfer = false;
  Call call;
  Transfer transfer;
};

// Puts them on their queues together, so that one thread may drive several ranks. Waits for those
// without a stream. Also waits where a library connects to its peers on first use.
Status issue_on_device(std::span<const DeviceItem> items);

Status refuse_stream(const Communicator& comm, const Stream& stream);
// Whether a call of `comm` may go to `stream` (null allowed): the error names the argument.
inline Status check_stream(const Communicator& comm, const Stream* stream) {
  return __builtin_expect(stream == nullptr, 1) ? ok_status() : refuse_stream(comm, *stream);
}
Status ask_device(const Communicator& comm, const Call& call);
// Whether the device's library has this call.
inline Status check_device_call(const Communicator& comm, const Call& call) {
  return __builtin_expect(comm.device() == nullptr, 1) ? ok_status() : ask_device(comm, call);
}

}  // namespace unisono
