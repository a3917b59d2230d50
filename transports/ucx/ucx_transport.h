// ucx: active messages of UCX (UCP) between any two ranks: InfiniBand and RoCE where there are any,
// else UCX's own shared memory and sockets. The library is loaded at run time.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "transports/transport.h"

namespace unisono {

// Ok where a UCX that is new enough can be loaded; `detail` (may be null) says its version and the
// RDMA devices. Loads it at the first call. Any thread.
Status ucx_available(std::string* detail);

// Whether this machine has a device for which UCX is the right choice without being asked: an
// InfiniBand or RoCE port that is up, and a UCX that can drive it.
bool ucx_preferred();

// Options: "tls=rc,ud" as "tls=rc+ud", "devices=mlx5_0:1+eth0". The context's endpoint may be null
// (then close() does not linger). Does not wait; the first one of a process takes tens of
// milliseconds, in which UCX looks for devices.
Result<std::unique_ptr<Transport>> make_ucx_transport(const TransportContext& context);

}  // namespace unisono
