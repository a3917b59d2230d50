// What does collectives on device buffers: the library of each kind of device, or why it cannot.
#include <fmt/format.h>

#include "tools/uni_info/gather.h"
#include "transports/collective_provider.h"

namespace unisono::uni_info {
namespace {

Result<std::string> look_at(const ProviderEntry& entry) {
  TRY_ASSIGN(DeviceRuntime * runtime, entry.runtime());
  TRY_ASSIGN(const int32_t count, runtime->device_count());
  return fmt::format("{}; {} device{}", runtime->describe(), count, count == 1 ? "" : "s");
}

}  // namespace

Json describe_devices() {
  Json devices = Json::array();
  for (const ProviderEntry& entry : provider_registry()) {
    const Result<std::string> found = look_at(entry);
    devices.push_back({{"name", entry.name},
                       {"device", entry.device},
                       {"available", found.ok()},
                       {"detail", found.ok() ? *found : found.status().message()}});
  }
  return devices;
}

}  // namespace unisono::uni_info
