// The transports that this build has: the only place in the library that names concrete ones is
// registry.cc.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/message_links.h"
#include "transports/transport.h"

namespace unisono {

// What transports that bring their own outside world (sim) share between the ranks of one
// uniCommInitAll.
class World {
 public:
  virtual ~World() = default;
  virtual Env& env() = 0;
  virtual std::unique_ptr<MessageLinks> make_links(int32_t rank) = 0;
  // The same world as the communicator of `members` (ranks of this one, in the child's order) sees
  // it: ranks are renumbered in env().enter, make_links and transports. Each member makes its own.
  // Null: this world has no smaller ones.
  virtual std::shared_ptr<World> subworld(std::span<const int32_t> members) {
    (void)members;
    return nullptr;
  }
};

struct TransportEntry {
  const char* name;  // "shm"
  // Ok, or why this machine cannot use it; `detail` says what it would use.
  Status (*available)(std::string* detail);
  // TransportContext::world is the World of make_world where that is not null.
  Result<std::unique_ptr<Transport>> (*create)(const TransportContext& context);
  // Null for transports of the real world. `options`: the text after "sim:".
  Result<std::shared_ptr<World>> (*make_world)(std::string_view options, int32_t ranks);
};

// In order of preference: self, shm, ucx, tcp, sim.
std::span<const TransportEntry> transport_registry();
// The list of who names none: "shm,tcp", with "ucx" before tcp where this machine has an InfiniBand
// or RoCE port that is up. Elsewhere UCX would only bring its own shared memory and sockets, which
// shm and tcp do better and without 20 ms to start. sim never. Ranks may differ: those in common
// are used.
std::string default_transports();
const TransportEntry* find_transport(std::string_view name);  // nullptr: unknown

}  // namespace unisono
