// A rank's channels to itself: send/recv to self, one-rank communicators.
#pragma once

#include <memory>

#include "transports/transport.h"

namespace unisono {

Result<std::unique_ptr<Transport>> make_self_transport(const TransportContext& context);

}  // namespace unisono
