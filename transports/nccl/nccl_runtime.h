// NCCL as a CollectiveProvider.
#pragma once

#include "transports/collective_provider.h"

namespace unisono {

// Loads NCCL and the CUDA runtime at the first call. Any thread.
Result<DeviceRuntime*> nccl_runtime();

}  // namespace unisono
