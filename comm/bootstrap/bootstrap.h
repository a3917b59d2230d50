// Bootstrap: how ranks that know nothing of each other meet. Everything reduces to one thing: a
// UniqueId gets to every rank; then each rank exchanges one payload with all others through the
// rendezvous that the id's maker serves.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/net/endpoint.h"
#include "base/status.h"

namespace unisono {

inline constexpr size_t kMaxPayloadBytes = 64u << 10;  // of one rank
inline constexpr int32_t kMaxRanks = 1 << 20;

// 128 bytes: magic, version, secret, job number, unix name, at most 3 numeric addresses (SEMANTICS
// "Meeting").
struct UniqueId {
  std::array<char, 128> bytes{};
};

// Makes an id and starts serving its rendezvous on the event loop, until all ranks of one exchange
// have their answer (or, unused, until the process ends). Any thread.
Result<UniqueId> create_unique_id();

// What an id says. kInvalidArgument naming `id` when it is not one.
struct IdContents {
  net::Secret secret{};
  uint64_t job = 0;
};
Result<IdContents> read_unique_id(const UniqueId& id);

// Sends this rank's payload, gets all ranks' (indexed by rank). Blocks up to the deadline; the
// error then says which ranks have not arrived. Wrong `ranks`, a rank out of range or taken twice:
// an error on every rank that names it.
Result<std::vector<std::string>> exchange(const UniqueId& id, int32_t ranks, int32_t rank,
                                          const std::string& payload, int64_t deadline_ns);

// Where a URL leads. ranks, rank: -1 to take them from the environment.
struct Place {
  UniqueId id;
  int32_t ranks = 1, rank = 0;
  std::string how;  // for the start-up line: "tcp://10.0.0.1:29500 (torchrun's agent store)"
};
// Meets by "tcp://host:port", "file:///path" or "env://" in SEMANTICS' order (this issue: explicit,
// uni-run's UNISONO_MEETING, torchrun's agent store, MASTER_ADDR/MASTER_PORT, else one host's
// abstract unix socket named by the job).
Result<Place> meet_by_url(const std::string& url, int32_t ranks, int32_t rank, int64_t deadline_ns);

// The same over a framework's store; functions as in uniStore_t, blocking, called on this thread.
struct StoreCalls {
  std::function<Status(const std::string& key, const std::string& value)> set;
  std::function<Result<std::string>(const std::string& key, int64_t timeout_ms)> get;
};
Result<Place> meet_by_store(const StoreCalls& store, const std::string& prefix, int32_t ranks,
                            int32_t rank, int64_t deadline_ns);

}  // namespace unisono
