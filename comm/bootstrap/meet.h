// The meeting points behind meet_by_url(), one function each. All block up to the deadline and give
// an id that every rank of the meeting gets.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/net/socket.h"
#include "base/status.h"
#include "comm/bootstrap/bootstrap.h"
#include "comm/bootstrap/rendezvous.h"

namespace unisono::bootstrap {

// Rank 0 writes the id to `path` (mode 0600) and removes it when all have met; the others wait for
// it.
Result<UniqueId> meet_at_file(const std::string& path, int32_t rank, int64_t deadline_ns);
// Rank 0 listens at `addresses` and hands the id out; the others fetch it there. `tag`: where
// another job may be met at the same place (ServeOptions).
Result<UniqueId> meet_at_addresses(const std::vector<net::Address>& addresses, int32_t rank,
                                   const std::optional<net::Secret>& job_key, int64_t deadline_ns,
                                   uint64_t tag = 0);
// Through torchrun's agent store at MASTER_ADDR:MASTER_PORT.
Result<UniqueId> meet_at_agent_store(const Environment& environment, int32_t rank,
                                     const std::optional<net::Secret>& job_key,
                                     int64_t deadline_ns);

// By what mpirun or srun offers: one host's unix socket, PMI-1, PMIx, Slurm's node list. `how` says
// which.
Result<UniqueId> meet_by_launcher(const Environment& environment, int32_t ranks, int32_t rank,
                                  const std::optional<net::Secret>& job_key, int64_t deadline_ns,
                                  std::string* how);

// The id as it may lie where strangers read it: without its secret if a job key stands for it.
std::string publish_id(const UniqueId& id, const std::optional<net::Secret>& job_key);
Result<UniqueId> read_published_id(std::string_view bytes,
                                   const std::optional<net::Secret>& job_key);

// meet_by_url() with the environment passed in.
Result<Place> meet(const std::string& url, int32_t ranks, int32_t rank,
                   const Environment& environment, const std::optional<net::Secret>& job_key,
                   int64_t deadline_ns);

}  // namespace unisono::bootstrap
