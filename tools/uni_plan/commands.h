// What uni-plan does, apart from reading its arguments. Each writes to standard output; an error is
// returned.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "algorithms/registry.h"
#include "base/status.h"
#include "tools/uni_plan/topology.h"

namespace unisono::uni_plan {

// To standard output, as all that the commands say: main asks at the end whether it got there.
void say(const std::string& text);
// kInvalidArgument says which there are.
Result<Collective> collective_of(const std::string& name);
Result<std::vector<Plan>> plans_of_all_ranks(const std::string& algorithm, PlanRequest request);

// Reads and proves; the error says what is wrong with which line, or which rule.
Result<std::vector<Plan>> plans_of_file(const std::string& file);

struct PrintOptions {
  std::string algorithm, collective;
  PlanRequest request;          // ranks, root, multicast
  std::optional<int32_t> rank;  // absent: all ranks
  bool json = false;
  bool unroll = false;
};
Status print(const PrintOptions& options);

void list();

struct VerifySelection {
  std::string algorithm, collective;  // empty: all
  int32_t first_ranks = 1, last_ranks = 8;
  std::vector<int32_t> hosts;  // of each rank; empty: all on one. Then ranks are as many as here.
};
// Proves every plan selected, from every root, with and without multicast. The error names the
// first that fails.
Status verify(const VerifySelection& selection);

// Where a plan comes from, and where the result goes.
struct ExchangeOptions {
  std::string algorithm, collective;
  PlanRequest request;    // ranks, root, multicast
  std::string plan_file;  // instead of all of these: a plan as text, which must be proved
  std::string file;       // empty: standard output
};
Status draw(const ExchangeOptions& options);
Status export_plan(const ExchangeOptions& options);
// Reads and proves a plan as text, and says what it is.
Status import_plan(const std::string& file);

struct SimulateOptions {
  std::string collective;
  std::vector<std::string> algorithms;  // empty: all that do it
  std::string plan_file;                // instead of both: a plan as text
  int32_t root = 0;
  Topology topology;
  std::string sizes = "8K-1G";
  uint64_t most_rounds = 0;  // simulated of a long pipeline; 0: by the size of the plan
  uint64_t calls = 1;        // back to back; more than 1: the time of one of them
  bool whole = false;        // all ranks, even where some stand for all
  bool json = false;
  std::string file;  // empty: standard output
};
Status simulate(const SimulateOptions& options);

// "4" or "1-17".
Status parse_ranks(const std::string& text, VerifySelection* selection);
// "3,2": ranks 0 to 2 on one host, 3 and 4 on the next. Appends the host of each rank.
Status parse_hosts(const std::string& text, std::vector<int32_t>* hosts);

}  // namespace unisono::uni_plan
