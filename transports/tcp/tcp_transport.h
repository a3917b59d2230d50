// tcp: one stream socket a pair of ranks, between hosts or on one; dialled when a channel of the
// pair is first opened.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "transports/transport.h"

namespace unisono {

// Ok always where sockets exist; `detail` (may be null) lists the addresses that it would use.
Status tcp_available(std::string* detail);

// The context's endpoint may be null only for one rank. Does not wait.
Result<std::unique_ptr<Transport>> make_tcp_transport(const TransportContext& context);

}  // namespace unisono
