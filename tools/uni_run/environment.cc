#include "tools/uni_run/environment.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>

#include "base/env.h"

namespace unisono::uni_run {
std::string random_hex(size_t bytes) {
  std::string raw(bytes, '\0'), text;
  real_env().random_bytes(raw.data(), raw.size());
  for (const char byte : raw) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// comm/bootstrap/job_secret.cc reads any text of 1 to 4096 bytes, from the beginning of a file: so
// all ranks may share one descriptor.
Result<net::Fd> secret_file(const std::string& text) {
  net::Fd fd(memfd_create("uni-run-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return system_error(errno, "memfd_create");
  if (write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return system_error(errno, "write of the job's secret");
  }
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return system_error(errno, "fcntl F_ADD_SEALS");
  return fd;
}

Result<ReservedPort> reserve_port() {
  net::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return system_error(errno, "socket");
  const int one = 1;
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  sockaddr_in address{};
  address.sin_family = AF_INET;  // port 0, any address: as a rank would listen
  socklen_t length = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd.get(), generic, length) != 0 || getsockname(fd.get(), generic, &length) != 0) {
    return system_error(errno, "choosing MASTER_PORT");
  }
  return ReservedPort{std::move(fd), ntohs(address.sin_port)};
}

Result<Job> make_job(const Options& options) {
  Job job;
  job.id = random_hex(16);
  job.meeting = "unix:uni-run-" + job.id;
  TRY_ASSIGN(job.secret, secret_file(random_hex(32)));
  if (options.master_host.empty()) {
    TRY_ASSIGN(ReservedPort reserved, reserve_port());
    job.master_host = "127.0.0.1";
    job.master_port = reserved.port;
    job.reserved_ports.push_back(std::move(reserved.fd));
  } else {
    job.master_host = options.master_host;
    job.master_port = options.master_port;
  }
  return job;
}

std::string job_marker(const Job& job) {
  return "UNISONO_MEETING=" + job.meeting;
}

std::vector<std::string> rank_environment(const Options& options, const Job& job, int rank,
                                          size_t cores) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=', 1);
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  const Part& part = options.part;
  for (const char* name : {"RANK", "ROLE_RANK"}) {
    variables[name] = std::to_string(part.first_rank + rank);
  }
  for (const char* name : {"WORLD_SIZE", "ROLE_WORLD_SIZE"}) {
    variables[name] = std::to_string(part.world);
  }
  variables["LOCAL_RANK"] = std::to_string(rank);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(options.ranks);
  variables["GROUP_RANK"] = std::to_string(part.node);
  variables["GROUP_WORLD_SIZE"] = std::to_string(part.nodes);
  variables["ROLE_NAME"] = "default";
  variables["MASTER_ADDR"] = job.master_host;
  variables["MASTER_PORT"] = std::to_string(job.master_port);
  variables["TORCHELASTIC_RUN_ID"] = job.id;
  variables["TORCHELASTIC_RESTART_COUNT"] = "0";
  variables["TORCHELASTIC_MAX_RESTARTS"] = "0";
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";  // there is no agent's store at MASTER_PORT
  // Threads of OpenMP would otherwise be as many as cores, in each rank.
  const size_t threads =
      options.bind == Bind::kNone ? cores / static_cast<size_t>(options.ranks) : cores;
  variables.emplace("OMP_NUM_THREADS", std::to_string(threads == 0 ? 1 : threads));
  variables["UNISONO_MEETING"] = job.meeting;
  variables["UNISONO_JOB_SECRET_FD"] = std::to_string(job.secret.get());
  for (const auto& [name, value] : options.variables) variables[name] = value;
  std::vector<std::string> result;
  for (const auto& [name, value] : variables) result.push_back(name + '=' + value);
  return result;
}

}  // namespace unisono::uni_run
