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
  net::Fd secret;  // a sealed memory file: every rank reads it through its inherited descriptor
  std::string master_host;
  int master_port = 0;
  // Keeps the chosen port ours until the job ends: the kernel gives it to nobody, yet a rank may
  // listen there (both sides set SO_REUSEADDR and this one never listens).
  net::Fd reserved_port;
};
Result<Job> make_job(const Options& options);

// The variable by which a process of this job is recognised: "UNISONO_MEETING=unix:...".
std::string job_marker(const Job& job);

// "NAME=VALUE" each: this process's own environment, then the job's, then --env. `cores`: how many
// this rank may use.
std::vector<std::string> rank_environment(const Options& options, const Job& job, int rank,
                                          size_t cores);

}  // namespace unisono::uni_run
