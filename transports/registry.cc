// The only place in the library that names concrete transports.
#include "transports/registry.h"

#include "transports/self/self_transport.h"
#include "transports/shm/shm_transport.h"
#if __has_include("transports/tcp/tcp_transport.h")
#include "transports/tcp/tcp_transport.h"
#define UNISONO_HAS_TCP 1
#endif
#if __has_include("transports/sim/sim_transport.h")
#include "transports/sim/sim_transport.h"
#define UNISONO_HAS_SIM 1
#endif

namespace unisono {
namespace {

Status always_available(std::string*) {
  return ok_status();
}

constexpr TransportEntry kEntries[] = {
    {"self", always_available, make_self_transport, nullptr},
    {"shm", shm_available, make_shm_transport, nullptr},
#ifdef UNISONO_HAS_TCP
    {"tcp", always_available, make_tcp_transport, nullptr},
#endif
#ifdef UNISONO_HAS_SIM
    {"sim", always_available, make_sim_transport, make_sim_world},
#endif
};

}  // namespace

std::span<const TransportEntry> transport_registry() {
  return kEntries;
}

const TransportEntry* find_transport(std::string_view name) {
  for (const TransportEntry& entry : kEntries) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

}  // namespace unisono
