#include "algorithms/verify/mutate.h"

#include <algorithm>
#include <utility>

namespace unisono {
namespace {

using Random = std::mt19937_64;

size_t below(Random* random, size_t bound) {
  return static_cast<size_t>((*random)() % bound);
}

// A step that `wanted` accepts.
struct Spot {
  Plan* plan = nullptr;
  size_t lane = 0, step = 0;
  Step& get() const { return plan->lanes[lane].steps[step]; }
};

template <class Wanted>
Spot pick(std::vector<Plan>* plans, Random* random, Wanted wanted) {
  std::vector<Spot> spots;
  for (Plan& plan : *plans) {
    for (size_t l = 0; l < plan.lanes.size(); ++l) {
      for (size_t s = 0; s < plan.lanes[l].steps.size(); ++s) {
        const Spot spot{&plan, l, s};
        if (wanted(spot)) spots.push_back(spot);
      }
    }
  }
  return spots.empty() ? Spot{} : spots[below(random, spots.size())];
}

// Repeats describe right plans; a mutated lane is plain steps.
void forget_repeats(const Spot& spot) {
  spot.plan->lanes[spot.lane].repeats.clear();
}

void drop_step(const Spot& spot) {
  forget_repeats(spot);
  const auto lane = static_cast<int8_t>(spot.lane);
  const auto step = static_cast<int32_t>(spot.step);
  auto& steps = spot.plan->lanes[spot.lane].steps;
  steps.erase(steps.begin() + step);
  for (Lane& other : spot.plan->lanes) {
    for (Step& waiting : other.steps) {
      auto& awaits = waiting.awaits;
      for (Await& await : awaits) {
        if (await.lane == lane && await.step >= step) --await.step;
      }
      std::erase_if(awaits, [](const Await& await) { return await.step < 0; });
    }
  }
  std::erase(spot.plan->order, std::pair(lane, step));
  for (auto& [l, s] : spot.plan->order) {
    if (l == lane && s > step) --s;
  }
}

// The ends of a step: its receives' channels and its forward.
std::vector<int16_t*> ends(Step* step) {
  std::vector<int16_t*> found;
  for (Operand& source : step->sources) {
    if (source.receive) found.push_back(&source.channel);
  }
  if (step->forward >= 0) found.push_back(&step->forward);
  return found;
}

bool swap_peer(Random* random, std::vector<Plan>* plans) {
  const Spot spot = pick(plans, random, [](const Spot& s) {
    return !ends(&s.get()).empty() && s.plan->channels.size() > 1;
  });
  if (spot.plan == nullptr) return false;
  forget_repeats(spot);
  const auto all = ends(&spot.get());
  int16_t& channel = *all[below(random, all.size())];
  channel = static_cast<int16_t>(
      (static_cast<size_t>(channel) + 1 + below(random, spot.plan->channels.size() - 1)) %
      spot.plan->channels.size());
  return true;
}

bool swap_two_peers(Random* random, std::vector<Plan>* plans) {
  const auto with_ends = [](const Spot& s) { return !ends(&s.get()).empty(); };
  const Spot one = pick(plans, random, with_ends);
  if (one.plan == nullptr) return false;
  const bool sends = one.get().forward >= 0;
  const Spot other = pick(plans, random, [&](const Spot& s) {
    return s.plan == one.plan && s.lane == one.lane && s.step != one.step &&
           (sends ? s.get().forward >= 0 && s.get().forward != one.get().forward
                  : !ends(&s.get()).empty() && s.get().forward < 0 &&
                        *ends(&s.get())[0] != *ends(&one.get())[0]);
  });
  if (other.plan == nullptr) return false;
  forget_repeats(one);
  if (sends) {
    std::swap(one.get().forward, other.get().forward);
  } else {
    std::swap(*ends(&one.get())[0], *ends(&other.get())[0]);
  }
  return true;
}

bool swap_operands(Random* random, std::vector<Plan>* plans) {
  const Spot spot = pick(plans, random, [](const Spot& s) { return s.get().sources.size() > 1; });
  if (spot.plan == nullptr) return false;
  auto& sources = spot.get().sources;
  const size_t i = below(random, sources.size() - 1);
  std::swap(sources[i], sources[i + 1]);
  return true;
}

std::vector<Chunk*> chunks(Step* step) {
  std::vector<Chunk*> found;
  for (Operand& source : step->sources) {
    if (!source.receive) found.push_back(&source.chunk);
  }
  if (step->has_destination) found.push_back(&step->destination);
  return found;
}

int32_t buffer_blocks(const Plan& plan, const Chunk& chunk) {
  if (chunk.buffer == Buffer::kInput) return plan.input_blocks;
  if (chunk.buffer == Buffer::kOutput) return plan.output_blocks;
  return plan.scratch_blocks[static_cast<size_t>(chunk.lane)];
}

void shift(const Plan& plan, Chunk* chunk) {
  chunk->first = (chunk->first + 1) % buffer_blocks(plan, *chunk);
}

bool shift_chunks(bool whole_step, Random* random, std::vector<Plan>* plans) {
  const Spot spot = pick(plans, random, [](const Spot& s) {
    const auto all = chunks(&s.get());
    return std::any_of(all.begin(), all.end(),
                       [&](Chunk* chunk) { return buffer_blocks(*s.plan, *chunk) > 1; });
  });
  if (spot.plan == nullptr) return false;
  const auto all = chunks(&spot.get());
  if (!whole_step) {
    shift(*spot.plan, all[below(random, all.size())]);
    return true;
  }
  for (Chunk* chunk : all) shift(*spot.plan, chunk);
  if (spot.plan->rule == BlockRule::kSplit) {
    spot.get().length.first = (spot.get().length.first + 1) % spot.plan->blocks;
  }
  return true;
}

bool change_await(bool drop, Random* random, std::vector<Plan>* plans) {
  const Spot spot = pick(plans, random, [](const Spot& s) { return !s.get().awaits.empty(); });
  if (spot.plan == nullptr) return false;
  auto& awaits = spot.get().awaits;
  const size_t i = below(random, awaits.size());
  if (drop) {
    awaits.erase(awaits.begin() + static_cast<int32_t>(i));
  } else if (awaits[i].step > 0 && below(random, 2) == 0) {
    awaits[i].step -= 1 + static_cast<int32_t>(below(random, static_cast<size_t>(awaits[i].step)));
  } else if (awaits[i].lag == 0) {
    awaits[i].lag = 2;
  } else {
    return false;
  }
  return true;
}

bool swap_with_next(Plan* plan, size_t lane, size_t step) {
  auto& steps = plan->lanes[lane].steps;
  if (step + 1 >= steps.size()) return false;
  plan->lanes[lane].repeats.clear();
  std::swap(steps[step], steps[step + 1]);
  return true;
}

bool reorder(bool all, Random* random, std::vector<Plan>* plans) {
  const Spot spot = pick(
      plans, random, [](const Spot& s) { return s.step + 1 < s.plan->lanes[s.lane].steps.size(); });
  if (spot.plan == nullptr) return false;
  if (!all) return swap_with_next(spot.plan, spot.lane, spot.step);
  for (Plan& plan : *plans) swap_with_next(&plan, spot.lane, spot.step);
  return true;
}

bool drop_operand(Random* random, std::vector<Plan>* plans) {
  const Spot spot = pick(plans, random, [](const Spot& s) { return s.get().sources.size() > 1; });
  if (spot.plan == nullptr) return false;
  forget_repeats(spot);
  auto& sources = spot.get().sources;
  sources.erase(sources.begin() + static_cast<int32_t>(below(random, sources.size())));
  return true;
}

}  // namespace

const char* mutation_name(Mutation mutation) {
  static constexpr const char* kNames[kMutations] = {
      "drop step",     "swap peer",   "swap two peers", "swap operands",
      "shift chunk",   "shift step",  "drop await",     "weaken await",
      "reorder steps", "reorder all", "flip final",     "drop operand"};
  return kNames[static_cast<size_t>(mutation)];
}

bool mutate(Mutation mutation, std::mt19937_64* random, std::vector<Plan>* plans) {
  const auto any = [](const Spot&) { return true; };
  switch (mutation) {
    case Mutation::kDropStep: {
      const Spot spot = pick(plans, random, any);
      if (spot.plan != nullptr) drop_step(spot);
      return spot.plan != nullptr;
    }
    case Mutation::kSwapPeer:
      return swap_peer(random, plans);
    case Mutation::kSwapTwoPeers:
      return swap_two_peers(random, plans);
    case Mutation::kSwapOperands:
      return swap_operands(random, plans);
    case Mutation::kShiftChunk:
      return shift_chunks(false, random, plans);
    case Mutation::kShiftStep:
      return shift_chunks(true, random, plans);
    case Mutation::kDropAwait:
      return change_await(true, random, plans);
    case Mutation::kWeakenAwait:
      return change_await(false, random, plans);
    case Mutation::kReorderSteps:
      return reorder(false, random, plans);
    case Mutation::kReorderAll:
      return reorder(true, random, plans);
    case Mutation::kFlipFinal: {
      const Spot spot = pick(plans, random, any);
      if (spot.plan != nullptr) spot.get().final = !spot.get().final;
      return spot.plan != nullptr;
    }
    case Mutation::kDropOperand:
      return drop_operand(random, plans);
  }
  return false;
}

}  // namespace unisono
