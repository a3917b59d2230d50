// The only place in the library that names concrete transports.
#include "transports/registry.h"

#include "transports/collective_provider.h"
#include "transports/nccl/nccl_runtime.h"
#include "transports/self/self_transport.h"
#include "transports/shm/shm_transport.h"
#include "transports/sim/sim_transport.h"
#include "transports/tcp/tcp_transport.h"
#include "transports/ucx/ucx_transport.h"

namespace unisono {
namespace {

Status always_available(std::string* detail) {
  if (detail != nullptr) *detail = "memory of the process";
  return ok_status();
}

constexpr TransportEntry kEntries[] = {
    {"self", always_available, make_self_transport, nullptr},
    {"shm", shm_available, make_shm_transport, nullptr},
    {"ucx", ucx_available, make_ucx_transport, nullptr},
    {"tcp", tcp_available, make_tcp_transport, nullptr},
    {"sim", always_available, make_sim_transport, make_sim_world},
};

constexpr ProviderEntry kProviders[] = {
    {"cuda", "nccl", nccl_runtime},
};

}  // namespace

std::span<const TransportEntry> transport_registry() {
  return kEntries;
}

std::string default_transports() {
  return ucx_preferred() ? "shm,ucx,tcp" : "shm,tcp";
}

const TransportEntry* find_transport(std::string_view name) {
  for (const TransportEntry& entry : kEntries) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

std::span<const ProviderEntry> provider_registry() {
  return kProviders;
}

const ProviderEntry* find_provider(std::string_view device) {
  for (const ProviderEntry& entry : kProviders) {
    if (device == entry.device) return &entry;
  }
  return nullptr;
}

}  // namespace unisono
