// Mutations (rule 17): small wrongs planted in right plans, to test the verifier. K = 1 is not
// among them: it is a parameter of a run.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "algorithms/plan.h"

namespace unisono {

enum class Mutation : uint8_t {
  kDropStep,      // and everything that counts steps is renumbered
  kSwapPeer,      // a step receives from or sends to another channel of its lane
  kSwapTwoPeers,  // two steps of a lane exchange their channels
  kSwapOperands,  // of a list
  kShiftChunk,    // an operand or the destination, by a block
  kShiftStep,     // all of a step's chunks and its length, by a block
  kDropAwait,
  kWeakenAwait,   // to an earlier step, or to lag 2
  kReorderSteps,  // neighbours of a lane
  kReorderAll,    // neighbours of a lane, on every rank alike
  kFlipFinal,
  kDropOperand,
};
inline constexpr int kMutations = 12;
const char* mutation_name(Mutation mutation);

// Plants one wrong of this kind in one rank's plan, chosen by `random`. False, plans untouched:
// there is nothing to mutate so.
bool mutate(Mutation mutation, std::mt19937_64* random, std::vector<Plan>* plans);

}  // namespace unisono
