#include "comm/control/deadlock.h"

#include <algorithm>
#include <optional>

namespace unisono::control {
namespace {

bool in_collective(const StallReport& report) {
  return report.call.sequence != 0;
}

class Search {
 public:
  Search(const std::map<int32_t, StallReport>& stalls, int32_t ranks)
      : stalls_(stalls), ranks_(ranks) {}

  // Who is stuck: at first all that wait in send or recv, then without those that wait for nobody
  // who is stuck, until that changes nothing.
  std::vector<int32_t> run() {
    for (const auto& [rank, report] : stalls_) {
      if (!in_collective(report) && !report.waits.empty()) next_[rank] = -1;
    }
    for (bool changed = true; changed && !next_.empty();) {
      add_collectives();
      changed = false;
      for (const auto& [rank, report] : stalls_) {
        if (in_collective(report) || next_.count(rank) == 0) continue;
        next_[rank] = stuck_behind(rank, report);
        if (next_[rank] >= 0) continue;
        next_.erase(rank);
        changed = true;
      }
    }
    return cycle();
  }

 private:
  // Collectives that wait for one who is stuck, directly or through others. Each points towards a
  // send or recv: collectives that only wait for each other are no deadlock, but messages on their
  // way.
  void add_collectives() {
    std::erase_if(next_, [this](const auto& one) { return in_collective(stalls_.at(one.first)); });
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [rank, report] : stalls_) {
        if (!in_collective(report) || next_.count(rank) != 0) continue;
        for (const auto& [other, onward] : next_) {
          if (!waits_for(rank, report, other)) continue;
          next_[rank] = other;
          changed = true;
          break;
        }
      }
    }
  }

  // Whether the collective of `rank` cannot end before the present call of `other` has.
  bool waits_for(int32_t rank, const StallReport& report, int32_t other) const {
    if (other == rank || (report.peer >= 0 && report.peer != other)) return false;
    const StallReport& theirs = stalls_.at(other);
    if (theirs.last < report.call.sequence) return true;  // it has not come so far
    return report.peer == other && in_collective(theirs) &&
           theirs.call.sequence == report.call.sequence;
  }

  // A rank that is stuck and keeps a send or recv of `rank` from ending; -1: none does.
  int32_t stuck_behind(int32_t rank, const StallReport& report) const {
    for (const PairWait& wait : report.waits) {
      if (wait.peer >= 0) {
        if (next_.count(wait.peer) != 0 && not_issued(rank, wait)) return wait.peer;
      } else if (const int32_t other = nobody_sends(rank, report); other >= 0) {
        return other;
      }
    }
    return -1;
  }

  // Whether the peer has to end its present call before it can issue what this waits for.
  bool not_issued(int32_t rank, const PairWait& wait) const {
    const auto tally = tally_of(stalls_.at(wait.peer), rank);
    if (!tally) return false;
    return (wait.receive ? tally->sent : tally->received + tally->open) < wait.ordinal;
  }

  // Of a receive from any rank: all others are stuck, and nothing of theirs is on its way.
  int32_t nobody_sends(int32_t rank, const StallReport& report) const {
    int32_t found = -1;
    for (int32_t other = 0; other < ranks_; ++other) {
      if (other == rank) continue;
      if (next_.count(other) == 0) return -1;
      const auto theirs = tally_of(stalls_.at(other), rank);
      const auto mine = tally_of(report, other);
      if (!theirs || !mine || theirs->sent > mine->received) return -1;
      if (found < 0) found = other;
    }
    return found;
  }

  static std::optional<PairTally> tally_of(const StallReport& report, int32_t peer) {
    const auto found = std::find_if(report.tallies.begin(), report.tallies.end(),
                                    [&](const PairTally& one) { return one.peer == peer; });
    if (found != report.tallies.end()) return *found;
    if (!report.all_tallies) return std::nullopt;
    return PairTally{peer, 0, 0, 0};
  }

  std::vector<int32_t> cycle() const {
    if (next_.empty()) return {};
    std::vector<int32_t> way;
    for (int32_t at = next_.begin()->first;; at = next_.at(at)) {
      const auto seen = std::find(way.begin(), way.end(), at);
      if (seen == way.end()) {
        way.push_back(at);
        continue;
      }
      way.erase(way.begin(), seen);
      break;
    }
    // First what tells most: a send or recv that meets a collective, if there is one.
    const auto pair = [&](int32_t rank) { return !in_collective(stalls_.at(rank)); };
    auto first = std::find_if(way.begin(), way.end(),
                              [&](int32_t rank) { return pair(rank) && !pair(next_.at(rank)); });
    if (first == way.end()) first = std::find_if(way.begin(), way.end(), pair);
    std::rotate(way.begin(), first, way.end());
    return way;
  }

  const std::map<int32_t, StallReport>& stalls_;
  const int32_t ranks_;
  std::map<int32_t, int32_t> next_;  // those held for stuck: whom each waits for
};

}  // namespace

std::vector<int32_t> find_deadlock(const std::map<int32_t, StallReport>& stalls, int32_t ranks) {
  return Search(stalls, ranks).run();
}

}  // namespace unisono::control
