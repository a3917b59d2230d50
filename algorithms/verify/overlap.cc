// Overlap (rule 14): every two accesses of one memory by different lanes, one of them writing, are
// ordered by program order, awaits and messages (a send happens before its receive). Credit is
// never an order, so a run at K slots proves nothing here.
//
// Clocks, as in race detectors: a step's clock says, for each lane of its rank, how many of that
// lane's steps (counted over all rounds) happen before it. Input and output have a slice of their
// own in each round, and no edge leads back to an earlier round, so one round decides about them.
// Scratch comes back after two rounds (rule 7): three rounds decide. First the clocks see only
// their own rank, which is where builders put their awaits. What they leave open is decided by
// clocks carried along all messages.
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "algorithms/verify/machine.h"

namespace unisono::verify {
namespace {

constexpr int32_t kRounds = 3;

// Clocks of one rank's steps, over kRounds rounds.
class Clocks {
 public:
  explicit Clocks(const Plan& plan) : lanes_(plan.lanes.size()) {
    for (const Lane& lane : plan.lanes) {
      first_.push_back(total_);
      steps_.push_back(static_cast<int64_t>(lane.steps.size()));
      total_ += lane.steps.size();
    }
    clocks_.assign(total_ * kRounds * lanes_, 0);
  }
  // The clock of a step: an entry a lane.
  int64_t* of(int64_t round, int32_t lane, int64_t step) {
    return &clocks_[(at(round) * total_ + first_[at(lane)] + at(step)) * lanes_];
  }
  int64_t count(int64_t round, int32_t lane, int64_t step) const {
    return round * steps_[at(lane)] + step + 1;
  }
  bool before(int64_t round, int32_t lane, int64_t step, int64_t than_round, int32_t than_lane,
              int64_t than_step) {
    return of(than_round, than_lane, than_step)[at(lane)] >= count(round, lane, step);
  }
  // Takes over what the step's lane and its awaits know. counts: the clocks are about this very
  // rank's lanes, so the step itself counts.
  void join_own_rank(int64_t round, int32_t lane, int64_t step, const Step& what, bool counts) {
    int64_t* clock = of(round, lane, step);
    if (step > 0) {
      join(clock, of(round, lane, step - 1));
    } else if (round > 0) {
      join(clock, of(round - 1, lane, steps_[at(lane)] - 1));
    }
    for (const Await& await : what.awaits) {
      if (round >= await.lag) join(clock, of(round - await.lag, await.lane, await.step));
    }
    if (counts) clock[at(lane)] = count(round, lane, step);
  }
  void join(int64_t* clock, const int64_t* other) const {
    for (size_t l = 0; l < lanes_; ++l) clock[l] = std::max(clock[l], other[l]);
  }

 private:
  size_t lanes_, total_ = 0;
  std::vector<size_t> first_;
  std::vector<int64_t> steps_;
  std::vector<int64_t> clocks_;
};

Clocks own_clocks(const Plan& plan) {
  Clocks clocks(plan);
  for (int32_t round = 0; round < kRounds; ++round) {
    for (const auto& [lane, step] : plan.order) {
      clocks.join_own_rank(round, lane, step, plan.lanes[at(lane)].steps[at(step)], true);
    }
  }
  return clocks;
}

// Carries the clock of one rank's lanes through all ranks: a run of the machine visits the steps in
// an order in which all edges point forward.
class CarriedClocks : public Machine::Observer {
 public:
  CarriedClocks(const Plans& plans, int32_t rank)
      : lanes_(plans[at(rank)].lanes.size()), rank_(rank) {
    for (const Plan& plan : plans) known_.emplace_back(plan);
  }
  Status fired(const Machine::Firing& f, const Machine& machine) override {
    if (carried_.empty()) carried_.resize(machine.slots() * lanes_);
    Clocks& clocks = known_[at(f.rank)];
    int64_t* clock = clocks.of(f.round, f.lane, f.step);
    clocks.join_own_rank(f.round, f.lane, f.step, *f.what, f.rank == rank_);
    for (const Operand& source : f.what->sources) {
      if (source.receive) {
        clocks.join(clock, &carried_[machine.slot_of_receive(f, source.channel) * lanes_]);
      }
    }
    if (f.what->forward >= 0) {
      std::copy_n(clock, lanes_, &carried_[machine.slot_of_send(f) * lanes_]);
    }
    return {};
  }
  Clocks& result() { return known_[at(rank_)]; }

 private:
  size_t lanes_;
  int32_t rank_;
  std::vector<Clocks> known_;
  std::vector<int64_t> carried_;
};

struct Access {
  int32_t location, lane, step;
  bool writes;
};

std::vector<Access> accesses_of(const Plan& plan, const MemoryMap& map) {
  std::vector<Access> accesses;
  const auto add = [&](const Chunk& chunk, size_t lane, size_t step, bool writes) {
    for (int32_t i = 0; i < chunk.blocks; ++i) {
      accesses.push_back(
          {map.location(chunk, i), static_cast<int32_t>(lane), static_cast<int32_t>(step), writes});
    }
  };
  for (size_t l = 0; l < plan.lanes.size(); ++l) {
    for (size_t s = 0; s < plan.lanes[l].steps.size(); ++s) {
      const Step& step = plan.lanes[l].steps[s];
      for (const Operand& source : step.sources) {
        if (!source.receive) add(source.chunk, l, s, false);
      }
      if (step.has_destination) add(step.destination, l, s, true);
    }
  }
  std::stable_sort(accesses.begin(), accesses.end(), [](const Access& a, const Access& b) {
    return std::tie(a.location, a.lane, a.step) < std::tie(b.location, b.lane, b.step);
  });
  return accesses;
}

// The accesses of one location by one lane, in program order.
using Run = std::span<const Access>;

struct Pair {
  Access one, other;
  int64_t lag;  // `one` is so many rounds earlier
};

class RankOverlap {
 public:
  RankOverlap(const Plan& plan, const MemoryMap& map)
      : map_(map), accesses_(accesses_of(plan, map)) {}

  // The first pair that `clocks` do not order.
  std::optional<Pair> unordered(Clocks* clocks) const {
    for (size_t begin = 0; begin < accesses_.size();) {
      std::vector<Run> lanes;
      const int32_t location = accesses_[begin].location;
      while (begin < accesses_.size() && accesses_[begin].location == location) {
        size_t end = begin;
        while (end < accesses_.size() && accesses_[end].location == location &&
               accesses_[end].lane == accesses_[begin].lane) {
          ++end;
        }
        lanes.push_back(Run(accesses_).subspan(begin, end - begin));
        begin = end;
      }
      for (size_t a = 0; a < lanes.size(); ++a) {
        for (size_t b = 0; b < lanes.size(); ++b) {
          if (a == b) continue;
          if (auto pair = same_round(lanes[a], lanes[b], clocks)) return pair;
          if (!map_.is_scratch(location)) continue;
          if (auto pair = two_rounds_on(lanes[a], lanes[b], clocks)) return pair;
        }
      }
    }
    return {};
  }

 private:
  // Each write of `writers` against all of `others`: a prefix happens before it, the rest must
  // happen after.
  static std::optional<Pair> same_round(Run writers, Run others, Clocks* clocks) {
    for (const Access& write : writers) {
      if (!write.writes) continue;
      const auto after = std::partition_point(others.begin(), others.end(), [&](const Access& x) {
        return clocks->before(2, x.lane, x.step, 2, write.lane, write.step);
      });
      if (after == others.end() ||
          clocks->before(2, write.lane, write.step, 2, after->lane, after->step)) {
        continue;
      }
      return Pair{write, *after, 0};
    }
    return {};
  }

  // The last use in one round against the first of two rounds later.
  static std::optional<Pair> two_rounds_on(Run before, Run after, Clocks* clocks) {
    const auto writes = [](const Access& access) { return access.writes; };
    const auto last_write = std::find_if(before.rbegin(), before.rend(), writes);
    const auto first_write = std::find_if(after.begin(), after.end(), writes);
    std::array<std::pair<const Access*, const Access*>, 2> pairs = {};
    if (first_write != after.end()) pairs[0] = {&before.back(), &*first_write};
    if (last_write != before.rend()) pairs[1] = {&*last_write, &after.front()};
    for (const auto& [one, other] : pairs) {
      if (one != nullptr && !clocks->before(0, one->lane, one->step, 2, other->lane, other->step)) {
        return Pair{*one, *other, 2};
      }
    }
    return {};
  }

  const MemoryMap& map_;
  std::vector<Access> accesses_;
};

}  // namespace

Status check_overlap(const Plans& plans, const Wiring& wiring) {
  for (const Plan& plan : plans) {
    const auto used = [](const Lane& lane) { return !lane.steps.empty(); };
    if (std::count_if(plan.lanes.begin(), plan.lanes.end(), used) < 2) continue;
    // In place is the form with the most overlaps; all others' are among them.
    const MemoryMap map(plan, true);
    const RankOverlap overlap(plan, map);
    Clocks own = own_clocks(plan);
    if (!overlap.unordered(&own)) continue;
    CarriedClocks carried(plans, plan.rank);
    MachineOptions options;
    options.rounds = kRounds;
    TRY(Machine({&plans}, wiring, options).run(&carried));
    const auto pair = overlap.unordered(&carried.result());
    if (!pair) continue;
    return violation("14", Place{plan, pair->one.lane, pair->one.step},
                     "overlaps lane {} '{}' step {}{} unordered", pair->other.lane,
                     plan.lanes[at(pair->other.lane)].name, pair->other.step,
                     pair->lag == 0 ? "" : " of two rounds later");
  }
  return {};
}

}  // namespace unisono::verify
