// The verifier: proves that the plans of all ranks compute their collective, whatever the timing.
//
// It proves section "What is proved" of docs/plan-machine.md (rules 14 to 16; rule 17 is
// tests/algorithms/verify_test.cc's, on mutate.h and random_run.h). Everything here is pure: no
// I/O, clock, environment or threads; callable from any thread; memory is linear in the plans'
// steps and blocks.
#pragma once

#include <vector>

#include "algorithms/plan.h"
#include "base/status.h"

namespace unisono {

struct VerifyOptions {
  int slots = 2;      // K of every channel; 2 is the least that a transport has (rule 1)
  bool late = false;  // also prove late mode (rule 5); plans that claim it are always proved so
  int rounds = 0;     // of the deadlock proof; 0: slots + 2 (rule 14)
  bool all_in_place_forms = true;  // false: values of the form "none in place" only
  bool multicast = true;           // channels may have several readers
  // Blocks may differ in length (v-variants), so every length must name its very blocks.
  bool unequal_blocks = false;
};

// Ok, or kInternalError whose message names the rule broken and, as far as they exist, rank, lane,
// step and round. `plans`: one a rank, by rank. A plan is input: nothing in it is trusted.
Status verify_plans(const std::vector<Plan>& plans, const VerifyOptions& options = {});

// The calls first, then, first over the same channels: no deadlock, and the channels are empty
// after each call (rule 14). Each set of plans must have been accepted by verify_plans.
Status verify_sequence(const std::vector<Plan>& first, const std::vector<Plan>& then,
                       const VerifyOptions& options = {});

}  // namespace unisono
