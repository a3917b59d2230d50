#include "algorithms/awaits.h"

#include <algorithm>

#include "base/check.h"

namespace unisono {
namespace {

// Where a step stands: its position in the plan's order and its number in its lane; -1: no such
// step.
struct Place {
  int32_t position = -1;
  int32_t step = -1;
};

// The latest reads and writes of every block by every lane.
class LatestUses {
 public:
  LatestUses(const Plan& plan) : plan_(plan), lanes_(plan.lanes.size()) {
    int32_t blocks = 2 * plan.blocks;
    for (int32_t lane_blocks : plan.scratch_blocks) {
      scratch_begin_.push_back(blocks);
      blocks += lane_blocks;
    }
    reads_.resize(static_cast<size_t>(blocks) * lanes_);
    writes_.resize(reads_.size());
  }

  // Calls visit(index of the block, is scratch) for every block of `chunk`.
  template <class Visit>
  void for_each_block(const Chunk& chunk, Visit visit) const {
    for (int32_t i = 0; i < chunk.blocks; ++i) {
      if (chunk.buffer == Buffer::kScratch) {
        visit(scratch_begin_[static_cast<size_t>(chunk.lane)] + chunk.first + i, true);
      } else {
        const int32_t of =
            chunk.buffer == Buffer::kInput ? plan_.input_blocks : plan_.output_blocks;
        visit(user_block_name(plan_, chunk.buffer, (chunk.first + i) % of), false);
      }
    }
  }

  Place& read(int32_t block, size_t lane) { return reads_[at(block, lane)]; }
  Place& write(int32_t block, size_t lane) { return writes_[at(block, lane)]; }
  // The latest step of `lane` that a reader (writer) of `block` conflicts with.
  Place conflict(int32_t block, size_t lane, bool writes) const {
    const Place& written = writes_[at(block, lane)];
    const Place& read = reads_[at(block, lane)];
    return writes && read.step > written.step ? read : written;
  }

 private:
  size_t at(int32_t block, size_t lane) const { return static_cast<size_t>(block) * lanes_ + lane; }

  const Plan& plan_;
  size_t lanes_;
  std::vector<int32_t> scratch_begin_;
  std::vector<Place> reads_, writes_;
};

template <class Visit>
void for_each_access(const Step& step, Visit visit) {  // visit(chunk, writes)
  for (const Operand& source : step.sources)
    if (!source.receive) visit(source.chunk, false);
  if (step.has_destination) visit(step.destination, true);
}

}  // namespace

int32_t user_block_name(const Plan& plan, Buffer buffer, int32_t block) {
  const bool input = buffer == Buffer::kInput;
  switch (plan.collective) {
    case Collective::kAllGather:
    case Collective::kGather:
      return input ? plan.rank : block;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return input ? block : plan.rank;
    case Collective::kAllToAll:
      return input ? block : plan.blocks + block;
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kBarrier:
      break;
  }
  return block;
}

void derive_awaits(Plan* plan) {
  const size_t lanes = plan->lanes.size();
  LatestUses uses(*plan);
  // awaited[a * lanes + b]: the furthest step of b that lane a has awaited so far in the round; -1:
  // none.
  std::vector<int32_t> awaited(lanes * lanes, -1);

  int32_t position = 0;
  for (const auto& [lane_number, step_number] : plan->order) {
    const size_t lane = static_cast<size_t>(lane_number);
    Step& step = plan->lanes[lane].steps[static_cast<size_t>(step_number)];
    std::vector<int32_t> needed(lanes, -1);
    for_each_access(step, [&](const Chunk& chunk, bool writes) {
      uses.for_each_block(chunk, [&](int32_t block, bool) {
        for (size_t other = 0; other < lanes; ++other)
          if (other != lane)
            needed[other] = std::max(needed[other], uses.conflict(block, other, writes).step);
      });
    });
    for (size_t other = 0; other < lanes; ++other) {
      int32_t& already = awaited[lane * lanes + other];
      if (needed[other] <= already) continue;
      already = needed[other];
      step.awaits.push_back({static_cast<int8_t>(other), 0, needed[other]});
    }
    for_each_access(step, [&](const Chunk& chunk, bool writes) {
      uses.for_each_block(chunk, [&](int32_t block, bool) {
        (writes ? uses.write(block, lane) : uses.read(block, lane)) = {position, step_number};
      });
    });
    ++position;
  }

  // Scratch of this round's parity was last used two rounds ago. `uses` now holds a round's latest
  // uses. Uses that come earlier in the order were awaited above, this round's for the older ones
  // too. And a lane that awaits anything of the other lane in each round has, by the end of round
  // k-1, seen all of the other's round k-2.
  std::vector<int32_t> awaited_lag_2(lanes * lanes, -1);
  position = 0;
  for (const auto& [lane_number, step_number] : plan->order) {
    const size_t lane = static_cast<size_t>(lane_number);
    Step& step = plan->lanes[lane].steps[static_cast<size_t>(step_number)];
    std::vector<int32_t> needed(lanes, -1);
    for_each_access(step, [&](const Chunk& chunk, bool writes) {
      uses.for_each_block(chunk, [&](int32_t block, bool is_scratch) {
        if (!is_scratch) return;
        for (size_t other = 0; other < lanes; ++other) {
          const Place place = uses.conflict(block, other, writes);
          if (other != lane && place.position > position)
            needed[other] = std::max(needed[other], place.step);
        }
      });
    });
    for (size_t other = 0; other < lanes; ++other) {
      int32_t& already = awaited_lag_2[lane * lanes + other];
      if (awaited[lane * lanes + other] >= 0 || needed[other] <= already) continue;
      already = needed[other];
      step.awaits.push_back({static_cast<int8_t>(other), 2, needed[other]});
    }
    ++position;
  }
}

}  // namespace unisono
