// A small machine that runs plans on data, one random move at a time: what rule 17 compares the
// verifier with.
//
// Of the proofs it shares the wiring of channels and the table of buffers only: memory is real (in
// place, buffers are one), a step reads, writes, sends and releases in separate moves, a transport
// copies messages whenever it likes, or (late) readers read the writer's memory. An element is a
// pair: a sum, which has one right value, and a hash that no other order of reduction gives.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/plan.h"
#include "base/status.h"

namespace unisono {

enum class InPlace : uint8_t { kNone, kAll, kEveryOther };

struct RandomRunOptions {
  int slots = 2;
  uint64_t count = 5;           // the call's: elements of the vector or of a block
  uint64_t slice_elements = 2;  // of a block, per round
  bool late = false;
  bool single_thread = false;  // each rank runs Plan::order
  InPlace in_place = InPlace::kNone;
  uint64_t seed = 0;  // of data and of moves
};

// Ok, or what went wrong: deadlock, wrong values, values that differ between ranks, unequal
// lengths, a barrier left too early. Pure but for the seed; any thread. Plans must at least name
// existing ranks, buffers and channels.
Status random_run(const std::vector<Plan>& plans, const RandomRunOptions& options);

}  // namespace unisono
