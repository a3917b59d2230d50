// Program: the plans of all ranks, made small, for the simulator: 40 bytes a step, channels by
// number over all ranks.
//
// Where the plan and the machines both look the same to every rank of every host (rank r + period's
// plan is rank r's, moved on by `period`: rings, pairwise exchange, not trees), one period of ranks
// stands for all: what it sends beyond its end arrives at its beginning, at the same time, as every
// period does the same at the same time. That keeps a ring of 10,000 ranks at 20,000 steps a rank
// instead of 200 million.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/registry.h"
#include "base/status.h"
#include "tools/uni_plan/topology.h"

namespace unisono::uni_plan {

struct ProgramStep {
  uint32_t first_receive = 0, first_await = 0;  // into Program::receives, ::awaits
  uint16_t receives = 0, awaits = 0;
  int32_t forward = -1;           // channel; -1: none
  int32_t first = 0, blocks = 0;  // the step's length
  uint16_t operands = 0;
  bool copies = false;  // one operand, and a place to put it
};

struct ProgramLane {
  int32_t rank = 0;
  uint32_t first_step = 0, steps = 0;
};

struct ProgramChannel {
  int32_t writer = 0, reader = 0;  // simulated ranks
  int32_t writer_lane = -1, reader_lane = -1;
  int32_t to = 0;  // the reader as the plan names it: differs from `reader` in a period
};

struct Program {
  BlockRule rule = BlockRule::kWhole;
  int32_t ranks = 0;      // of the plan
  int32_t simulated = 0;  // ranks that stand for all
  int32_t blocks = 1, message_blocks = 1;
  int32_t lanes_per_rank = 0;
  std::vector<ProgramLane> lanes;  // of rank 0, then of rank 1, ...
  std::vector<ProgramStep> steps;
  std::vector<int32_t> receives;  // channels
  std::vector<Await> awaits;
  std::vector<ProgramChannel> channels;

  bool symmetric() const { return simulated < ranks; }
};

struct ProgramOptions {
  bool whole = false;  // all ranks, even where a period would do
  int64_t most_steps = 50'000'000;
};

// kInvalidUsage: more steps than wanted, in words. kInvalidArgument: the algorithm does not do it.
Result<Program> compile_program(const std::string& algorithm, PlanRequest request,
                                const Topology& topology, const ProgramOptions& options);

// Of all ranks' plans, by rank. kInvalidArgument: a channel has several readers.
Result<Program> compile_plans(const std::vector<Plan>& plans);

}  // namespace unisono::uni_plan
