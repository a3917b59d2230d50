// What this machine's caches hold.
#pragma once

#include <cstdint>

namespace unisono {

// A core's part of the cache that cores share last: its bytes over the processors that share it.
// Looked up once; 4 MiB where the system does not tell.
uint64_t shared_cache_a_core();

}  // namespace unisono
