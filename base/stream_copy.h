// Copies past the caches.
#pragma once

#include <cstddef>

namespace unisono {

// memcpy with non-temporal stores where the processor has them, fenced before returning: what is
// published afterwards is seen after the bytes. For memory that this core will not read soon.
void stream_copy(void* to, const void* from, size_t bytes);

}  // namespace unisono
