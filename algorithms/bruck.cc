// Bruck. All-gather: rank r first has block r; in phase j it sends the blocks that it has, r ... r
// + 2^j - 1 (all numbers mod n), to rank r - 2^j and gets r + 2^j ... from rank r + 2^j: after
// ceil(log2 n) phases it has all, whatever n. Chunks count modulo n, so the rotations of the paper
// are no work here.
// All-to-all: a block for the rank d places on travels by the set bits of d: in phase j every rank
// sends all blocks whose d has bit j to rank r + 2^j, in one message. They are packed into it from
// where they arrived (lane "pack"), and blocks that have reached their rank are taken out (lane
// "unpack"). Within a message d falls, so that the blocks that have arrived are consecutive in the
// output.
//
// Notation: n ranks, S bytes of the collective (all n blocks), L = ceil(log2 n).
//   all-gather: 2 L steps, sends and receives (n-1)/n S, the least possible.
//   all-to-all: L sends and receives, at most n/2 blocks each: about L/2 S; about 2 n local copies
//   of runs of blocks; scratch for two messages a phase.
// Wins for short blocks, where n-1 start-ups (pairwise, ring) cost more than the bytes moved again.
//
// Paper: Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all communications
// in multiport message-passing systems (1997).
#include <algorithm>

#include "algorithms/rows.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

// Blocks that phase `distance` of an all-gather moves.
int32_t gathered_in(int32_t n, int32_t distance) {
  return std::min(distance, n - distance);
}

void all_gather(PlanBuilder* plan) {
  const int8_t send = plan->lane("send"), receive = plan->lane("receive");
  const int32_t n = plan->n(), me = plan->me();
  int32_t most = 1;
  for (int32_t distance = 1; distance < n; distance *= 2)
    most = std::max(most, gathered_in(n, distance));
  plan->pack_messages(most);
  for (int32_t distance = 1; distance < n; distance *= 2) {
    const int32_t count = gathered_in(n, distance);
    StepSpec first{.sources = {plan->output(me, count)},
                   .forward = plan->to(plan->after(-distance))};
    if (distance == 1) {
      first.sources = {plan->input(0)};
      first.into = plan->output(me);
    }
    plan->step(send, first);
    plan->step(receive, {.sources = {plan->receive(plan->after(distance))},
                         .into = plan->output(me + distance, count)});
  }
}

// The all-to-all's messages, the same on every rank: which d each phase carries, falling.
std::vector<std::vector<int32_t>> phases_of(int32_t n) {
  std::vector<std::vector<int32_t>> phases;
  for (int32_t distance = 1; distance < n; distance *= 2) {
    phases.emplace_back();
    for (int32_t d = n - 1; d > 0; --d)
      if ((d & distance) != 0) phases.back().push_back(d);
  }
  return phases;
}

int32_t size_of(const std::vector<int32_t>& list) {
  return static_cast<int32_t>(list.size());
}

// One rank's all-to-all, phase by phase.
class AllToAll {
 public:
  explicit AllToAll(PlanBuilder* plan)
      : plan_(*plan),
        pack_(plan->lane("pack")),
        send_(plan->lane("send")),
        receive_(plan->lane("receive")),
        unpack_(plan->lane("unpack")),
        phases_(phases_of(plan->n())) {
    int32_t most = 1, blocks = 0;
    for (const std::vector<int32_t>& phase : phases_) {
      most = std::max(most, size_of(phase));
      first_.push_back(blocks);
      blocks += size_of(phase);
    }
    plan->pack_messages(most);
    where_.resize(static_cast<size_t>(plan->n()));
    for (int32_t d = 0; d < plan->n(); ++d)
      where_[static_cast<size_t>(d)] = plan->input(plan->me() + d);
  }

  void run() {
    plan_.step(unpack_, {.sources = {where_[0]}, .into = plan_.output(plan_.me())});
    for (size_t phase = 0; phase < phases_.size(); ++phase) {
      const int32_t distance = 1 << phase;
      plan_.step(send_, {.sources = {packed(phase)}, .forward = plan_.to(plan_.after(distance))});
      arrive(phase, plan_.after(-distance));
    }
  }

 private:
  // The phase's blocks as one chunk: where they lie, if in one run, else copied together.
  Chunk packed(size_t phase) {
    std::vector<Chunk> runs;
    for (int32_t d : phases_[phase]) {
      const Chunk& block = where_[static_cast<size_t>(d)];
      const bool joins = !runs.empty() && runs.back().buffer == Buffer::kScratch &&
                         block.buffer == Buffer::kScratch &&
                         runs.back().first + runs.back().blocks == block.first;
      if (joins)
        ++runs.back().blocks;
      else
        runs.push_back(block);
    }
    if (runs.size() == 1) return runs[0];
    int32_t at = first_[phase];
    for (const Chunk& run : runs) {
      plan_.step(pack_, {.sources = {run}, .into = PlanBuilder::scratch(pack_, at, run.blocks)});
      at += run.blocks;
    }
    return PlanBuilder::scratch(pack_, first_[phase], size_of(phases_[phase]));
  }

  // Receives the phase's blocks. The last ones, d < 2 * distance, have no further bit: they are at
  // home.
  void arrive(size_t phase, int32_t from) {
    const std::vector<int32_t>& list = phases_[phase];
    const int32_t distance = 1 << phase, count = size_of(list);
    const int32_t home = std::min(distance, plan_.n() - distance);
    const Chunk output = plan_.output(plan_.me() - (distance + home - 1), home);
    if (home == count) {
      plan_.step(receive_, {.sources = {plan_.receive(from)}, .into = output});
      return;
    }
    plan_.step(receive_, {.sources = {plan_.receive(from)},
                          .into = PlanBuilder::scratch(receive_, first_[phase], count)});
    for (int32_t i = 0; i < count; ++i)
      where_[static_cast<size_t>(list[static_cast<size_t>(i)])] =
          PlanBuilder::scratch(receive_, first_[phase] + i);
    plan_.step(unpack_,
               {.sources = {PlanBuilder::scratch(receive_, first_[phase] + count - home, home)},
                .into = output});
  }

  PlanBuilder& plan_;
  int8_t pack_, send_, receive_, unpack_;
  std::vector<std::vector<int32_t>> phases_;
  std::vector<int32_t> first_;  // by phase: scratch block of its message
  std::vector<Chunk> where_;    // by d: where the block now lies that goes d places on in all
};

void all_to_all(PlanBuilder* plan) {
  AllToAll(plan).run();
}

constexpr About kAbout{"bruck", "Bruck, Ho, Kipnis, Upfal, Weathersby 1997", true, 9, kUnmeasured};
constexpr Way kWays[] = {{Collective::kAllGather, all_gather}, {Collective::kAllToAll, all_to_all}};

Cost cost(const PlanRequest& request) {
  const double n = request.ranks;
  const double phases = ceil_log2(request.ranks);
  if (request.collective == Collective::kAllGather)
    return {.messages = phases, .wire_bytes = (n - 1) / n, .copy_bytes = 1 / n};
  double moved = 0;  // numbers below n with bit j, over all j
  for (int64_t bit = 1; bit < request.ranks; bit *= 2) {
    const int64_t periods = request.ranks / (2 * bit), rest = request.ranks % (2 * bit);
    moved += static_cast<double>(periods * bit + std::max<int64_t>(0, rest - bit));
  }
  return {.messages = phases, .wire_bytes = moved / n, .copy_bytes = 2 * moved / n};
}

}  // namespace

Algorithm bruck_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
