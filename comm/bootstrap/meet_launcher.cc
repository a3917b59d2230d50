// Ranks started by mpirun or srun, with no MASTER_ADDR: what the launcher itself offers.
#include <dlfcn.h>
#include <netinet/in.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <mutex>

#include "base/log.h"
#include "comm/bootstrap/host_list.h"
#include "comm/bootstrap/job_secret.h"
#include "comm/bootstrap/meet.h"
#include "comm/bootstrap/pmi1_client.h"
#include "comm/bootstrap/pmix_client.h"

namespace unisono::bootstrap {
namespace {

using JobKey = std::optional<net::Secret>;

// One meeting at a time goes through a process manager.
std::mutex exchange_mutex;

// Ports that services rarely have and the kernel gives to nobody by itself, mostly.
constexpr uint64_t kFirstPort = 20'000, kPorts = 40'000;

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

Result<std::string> from_hex(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    unsigned value = 0;
    const auto [end, code] = std::from_chars(text.data() + i, text.data() + i + 2, value, 16);
    if (code != std::errc() || end != text.data() + i + 2) {
      return Status(Code::kRemoteError, "what rank 0 published is no id");
    }
    bytes += static_cast<char>(value);
  }
  return bytes;
}

// Names the job: equal on all its ranks, different from what this user's other jobs have.
uint64_t job_number(const Environment& env) {
  // Ranks of one launcher on one host have one parent: its process manager.
  const std::string job = env.job_id.empty() ? fmt::format("parent {}", getppid()) : env.job_id;
  const net::Secret hash = key_from_text(fmt::format("{} {} {}", env.launcher, geteuid(), job));
  uint64_t number = 0;
  std::copy_n(hash.begin(), sizeof(number), reinterpret_cast<unsigned char*>(&number));
  return number;
}

Result<UniqueId> meet_on_one_host(const Environment& env, int32_t rank, const JobKey& job_key,
                                  int64_t deadline_ns, std::string* how) {
  const std::string name = fmt::format("unisono-job-{:016x}", job_number(env));
  *how = fmt::format("unix:{} (one host, {})", name, env.launcher);
  auto id = meet_at_addresses({net::unix_address(name)}, rank, job_key, deadline_ns);
  return id.ok() ? id : id.status().annotate(*how);
}

// Put by rank 0, a barrier of all, get by the others. The n-th meeting of each process
// is one meeting: ranks initialise in the same order.
template <class Put, class Barrier, class Get>
Result<UniqueId> meet_by_exchange(int32_t rank, const JobKey& job_key, Put put, Barrier barrier,
                                  Get get) {
  static std::atomic<int> meetings{0};
  const std::string key = fmt::format("unisono-{}", meetings.fetch_add(1));
  if (rank != 0) {
    TRY(barrier());
    TRY_ASSIGN(const std::string text, get(key));
    TRY_ASSIGN(const std::string bytes, from_hex(text));
    return read_published_id(bytes, job_key);
  }
  ServeOptions options;
  options.job_key = job_key;
  TRY_ASSIGN(const UniqueId id, serve_meeting(std::move(options)));
  Status status = put(key, to_hex(publish_id(id, job_key)));
  if (status.ok()) status = barrier();
  if (status.ok()) return id;
  withdraw_meeting(id);
  return status;
}

// Kept to the end of the process: a manager takes a client's end without a farewell for a failure.
Result<Pmi1Client*> pmi1_client(int fd, int64_t deadline_ns) {
  static Pmi1Client* client = nullptr;
  static pid_t owner = -1;
  if (client == nullptr) {
    TRY_ASSIGN(Pmi1Client made, Pmi1Client::start(fd, deadline_ns));
    client = new Pmi1Client(std::move(made));
    owner = getpid();
    (void)std::atexit([] {
      if (getpid() == owner) client->finish();
    });
  }
  return client;
}

Result<UniqueId> meet_by_pmi1(const Environment& env, int32_t rank, const JobKey& job_key,
                              int64_t deadline_ns, std::string* how) {
  *how = fmt::format("PMI-1 (PMI_FD {})", env.pmi_fd);
  const std::lock_guard lock(exchange_mutex);
  TRY_ASSIGN(Pmi1Client * client, pmi1_client(env.pmi_fd, deadline_ns));
  return meet_by_exchange(
      rank, job_key,
      [&](const std::string& key, const std::string& value) {
        return client->put(key, value, deadline_ns);
      },
      [&] { return client->barrier(deadline_ns); },
      [&](const std::string& key) { return client->get(key, deadline_ns); });
}

// Kept too: PMIx cannot be started again once its last user has gone.
Result<PmixClient*> pmix_client() {
  static PmixClient* client = nullptr;
  static pid_t owner = -1;
  if (client == nullptr) {
    TRY_ASSIGN(PmixClient made, PmixClient::start());
    client = new PmixClient(made);
    owner = getpid();
    (void)std::atexit([] {
      if (getpid() == owner) client->finish();
    });
  }
  return client;
}

// kInvalidUsage: there is no PMIx here.
Result<UniqueId> meet_by_pmix(int32_t rank, const JobKey& job_key, int64_t deadline_ns) {
  const std::lock_guard lock(exchange_mutex);
  TRY_ASSIGN(PmixClient * client, pmix_client());
  return meet_by_exchange(
      rank, job_key,
      [&](const std::string& key, const std::string& value) { return client->put(key, value); },
      [&] { return client->fence(deadline_ns); },
      [&](const std::string& key) { return client->get(0, key, deadline_ns); });
}

// The step's first host has rank 0, unless the user distributes ranks otherwise (srun -m); then
// nobody answers there, and MASTER_ADDR is needed.
Result<UniqueId> meet_by_slurm(const Environment& env, const std::string& first_host, int32_t rank,
                               const JobKey& job_key, int64_t deadline_ns, std::string* how) {
  const uint64_t number = job_number(env);
  const int port = static_cast<int>(kFirstPort + number % kPorts);
  *how = fmt::format("tcp://{}:{} (Slurm's node list)", first_host, port);
  auto addresses = net::resolve_host(first_host, port);
  if (!addresses.ok()) return addresses.status().annotate("SLURM_STEP_NODELIST");
  if (!job_key && rank == 0) {
    log_info("unauthenticated start: without UNISONO_JOB_SECRET whoever reaches {}:{} gets the id",
             first_host, port);
  }
  // Another job may have the port.
  auto id = meet_at_addresses(*addresses, rank, job_key, deadline_ns, number >> 1);
  if (id.ok()) return id;
  return id.status().annotate(
      fmt::format("{}: is rank 0 there? (if not: set MASTER_ADDR, MASTER_PORT)", *how));
}

// A process that uses MPI needs PMI's one connection for it.
bool uses_mpi() {
  return dlsym(RTLD_DEFAULT, "MPI_Init") != nullptr;
}

}  // namespace

Result<UniqueId> meet_by_launcher(const Environment& env, int32_t ranks, int32_t rank,
                                  const JobKey& job_key, int64_t deadline_ns, std::string* how) {
  const bool launched =
      env.launcher == "openmpi" || env.launcher == "pmi" || env.launcher == "slurm";
  if (!launched) {
    return error(Code::kInvalidArgument,
                 "MASTER_ADDR, MASTER_PORT: not set, and no other meeting point is known");
  }
  std::vector<std::string> hosts;
  if (!env.slurm_nodes.empty()) {
    auto expanded = expand_host_list(env.slurm_nodes);
    if (!expanded.ok()) return expanded.status().annotate("SLURM_STEP_NODELIST");
    hosts = std::move(*expanded);
  }
  // An allocation may have more hosts than the job that mpirun starts in it.
  const bool several_hosts =
      env.local_world_size > 0 ? env.local_world_size != ranks : hosts.size() > 1;
  if (!several_hosts) return meet_on_one_host(env, rank, job_key, deadline_ns, how);
  std::string tried;
  // Slurm's PMI-2 sets the same variable for another protocol, but no local size.
  if (env.pmi_fd >= 0 && env.local_world_size > 0) {
    if (!uses_mpi()) return meet_by_pmi1(env, rank, job_key, deadline_ns, how);
    tried += "; PMI_FD belongs to this process's MPI";
  }
  if (env.pmix) {
    *how = "PMIx";
    auto id = meet_by_pmix(rank, job_key, deadline_ns);
    if (id.ok() || id.status().code() != Code::kInvalidUsage) return id;
    tried += "; " + id.status().message();
  }
  if (!hosts.empty()) {
    return meet_by_slurm(env, hosts.front(), rank, job_key, deadline_ns, how);
  }
  return error(Code::kInvalidArgument,
               "MASTER_ADDR, MASTER_PORT: not set, and the job spans hosts ({} of {} ranks are "
               "here){}",
               env.local_world_size, ranks, tried);
}

}  // namespace unisono::bootstrap
