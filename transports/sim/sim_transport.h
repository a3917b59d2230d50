// The simulator as a transport: channels in the memory of one process, whose messages take virtual
// time.
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "transports/registry.h"
#include "transports/transport.h"

namespace unisono {

// Needs context.world of make_sim_world (or a subworld of it) and a waiter of its Env. Any thread;
// does not block.
Result<std::unique_ptr<Transport>> make_sim_transport(const TransportContext& context);

// options: see sim_options.h. The world lives as long as the longest holder; its Env and links must
// not outlive it.
Result<std::shared_ptr<World>> make_sim_world(std::string_view options, int32_t ranks);

}  // namespace unisono
