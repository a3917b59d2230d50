// The shared-memory transport: channels between ranks of one machine through memfd segments. See
// README.md.
#pragma once

#include <memory>

#include "transports/transport.h"

namespace unisono {

// context.endpoint may be null (one rank). Costs no memory until there is a peer on this machine.
Result<std::unique_ptr<Transport>> make_shm_transport(const TransportContext& context);
// Whether this machine can do it: memfd and sealing. `detail` says how sleepers are woken.
Status shm_available(std::string* detail);

}  // namespace unisono
