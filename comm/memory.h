// Memory that peers on this machine can map: behind uniMemAlloc.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "transports/transport.h"

namespace unisono {

// Page-aligned, zeroed, shared (memfd). Any thread. The process owns it until free_shareable.
Result<void*> allocate_shareable(size_t bytes);
// kInvalidArgument when `pointer` is not the start of such memory. Null is allowed.
Status free_shareable(void* pointer);
// The Region of any range: with a descriptor if all of it lies in shareable memory, else fd == -1.
Result<Region> shareable_region(void* pointer, size_t bytes);

}  // namespace unisono
