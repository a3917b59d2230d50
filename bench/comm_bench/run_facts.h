// Under what a run was made: machine, library, ranks, flags. The head of the JSON.
#pragma once

#include <string>
#include <vector>

#include "bench/comm_bench/json.h"
#include "bench/comm_bench/measure.h"
#include "bench/comm_bench/options.h"

namespace bench {

struct RankLine {
  int rank = 0, pid = 0;
  std::string host, transport;  // all transports in use at this rank, comma-separated
};

// Of all ranks, at every rank. Collective.
std::vector<RankLine> gather_lines(const Ranks& ranks);
// version, machine (this rank's), config, devices.
Json run_facts(const Options& options, const Ranks& ranks, const std::vector<RankLine>& lines);
std::string version_text();
const char* cache_name(Cache cache);
// The "#  Rank" lines.
void print_lines(const std::vector<RankLine>& lines);
// Before anything is measured for them. False, with a message, if a file that -J or --report names
// cannot be opened for writing; what is there stays as it is.
bool can_write_files(const Options& options);
// Writes the files that -J and --report name. False, with a message, if one could not be written.
bool write_files(const Options& options, const Json& all);

}  // namespace bench
