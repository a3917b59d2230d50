// The simulator: a Program's steps on a Topology, event by event. docs/scale.md says what costs
// what. Pure; deterministic.
#pragma once

#include <cstdint>

#include "tools/uni_plan/program.h"
#include "tools/uni_plan/topology.h"

namespace unisono::uni_plan {

// A call of the program. `elements`: as plan.h's `count` (of the vector where the rule is split, of
// one block otherwise).
struct SimulatedCall {
  uint64_t elements = 0;
  uint64_t element_bytes = 4;
};

struct SimulatedTime {
  double us = 0;
  uint64_t rounds = 1;     // of the call
  uint64_t simulated = 1;  // rounds; fewer than all: the rest at the pace of the last half
  uint64_t messages = 0;   // simulated, of the ranks simulated
};

struct SimulatorOptions {
  // More than one: the time of one of many calls, back to back: of the later half of twice as many.
  uint64_t calls = 1;
  uint64_t most_rounds = 96;  // at least 8; a pipeline's pace is constant long before
};

// How many rounds the call has.
uint64_t rounds_of(const Program& program, const Topology& topology, const SimulatedCall& call);

SimulatedTime simulate_call(const Program& program, const Topology& topology,
                            const SimulatedCall& call, const SimulatorOptions& options);

}  // namespace unisono::uni_plan
