// What the ranks of one job find in their environment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/net/socket.h"
#include "base/status.h"
#include "tools/uni_run/options.h"

namespace unisono::uni_run {

// What the ranks of one job share.
struct Job {
  std::string id;  // random: nobody guesses the meeting point, and it marks the job's processes
  std::string meeting;  // UNISONO_MEETING
  net::Fd secret;  // a sealed memory file: every rank reads it through its inherited descriptor
  std::string master_host;
  int master_port = 0;
  // Keeps the chosen port ours until the job ends: the kernel gives it to nobody, yet a rank may
  // listen there (both sides set SO_REUSEADDR and this one never listens).
  std::vector<net::Fd> reserved_ports;
};
Result<Job> make_job(const Options& options);

std::string random_hex(size_t bytes);
struct ReservedPort {
  net::Fd fd;
  int port = 0;
};
Result<ReservedPort> reserve_port();
// A sealed memory file with this text.
Result<net::Fd> secret_file(const std::string& text);

// The variable by which a process of this job is recognised: "UNISONO_MEETING=...".
std::string job_marker(const Job& job);

// "NAME=VALUE" each: this process's own environment, then the job's, then --env. `rank`: of this
// host. `cores`: how many this rank may use.
std::vector<std::string> rank_environment(const Options& options, const Job& job, int rank,
                                          size_t cores);

}  // namespace unisono::uni_run
