// Communicators made from communicators.
#pragma once

#include <memory>
#include <span>

#include "comm/communicator.h"

namespace unisono {

// All ranks of parent call. The result is null for ranks with color -1.
Result<std::unique_ptr<Communicator>> split(Communicator& parent, int32_t color, int32_t key,
                                            const Settings& settings);
// Only the members call, with the same list and tag.
Result<std::unique_ptr<Communicator>> create_group(Communicator& parent,
                                                   std::span<const int32_t> members, int32_t tag,
                                                   const Settings& settings);

}  // namespace unisono
