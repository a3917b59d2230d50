// A barrier moves no values: nobody may leave before everybody has entered. What a rank knows of,
// it knows by awaits and messages, as in the overlap check; credit is never an order.
#include "algorithms/verify/machine.h"

namespace unisono::verify {
namespace {

// Sets of ranks, each as `words` words.
using Ranks = std::vector<uint64_t>;

class Arrivals : public Machine::Observer {
 public:
  explicit Arrivals(const Plans& plans) : words_((plans.size() + 63) / 64) {
    for (const Plan& plan : plans) {
      std::vector<std::vector<Ranks>> lanes;
      for (const Lane& lane : plan.lanes) {
        Ranks self(words_, 0);
        self[at(plan.rank) / 64] |= uint64_t{1} << (plan.rank % 64);
        lanes.emplace_back(lane.steps.size(), self);
      }
      known_.push_back(std::move(lanes));
    }
  }

  Status fired(const Machine::Firing& f, const Machine& machine) override {
    if (messages_.empty()) messages_.resize(machine.slots());
    auto& lanes = known_[at(f.rank)];
    Ranks& known = lanes[at(f.lane)][at(f.step)];
    if (f.step > 0) join(&known, lanes[at(f.lane)][at(f.step - 1)]);
    for (const Await& await : f.what->awaits) {
      if (await.lag == 0) join(&known, lanes[at(await.lane)][at(await.step)]);
    }
    for (const Operand& source : f.what->sources) {
      if (source.receive) join(&known, messages_[machine.slot_of_receive(f, source.channel)]);
    }
    if (f.what->forward >= 0) messages_[machine.slot_of_send(f)] = known;
    return {};
  }

  // A rank leaves when all of its lanes have ended (rule 8).
  Status check(const Plans& plans) const {
    for (const Plan& plan : plans) {
      Ranks all(words_, 0);
      all[at(plan.rank) / 64] |= uint64_t{1} << (plan.rank % 64);
      for (const auto& lane : known_[at(plan.rank)]) {
        if (!lane.empty()) join(&all, lane.back());
      }
      for (size_t r = 0; r < plans.size(); ++r) {
        if (all[r / 64] >> (r % 64) & 1) continue;
        return violation("15", Place{plan}, "leaves the barrier before rank {} has entered", r);
      }
    }
    return {};
  }

 private:
  void join(Ranks* set, const Ranks& other) const {
    for (size_t w = 0; w < words_; ++w) (*set)[w] |= other[w];
  }

  size_t words_;
  std::vector<std::vector<std::vector<Ranks>>> known_;  // by rank, lane, step
  std::vector<Ranks> messages_;                         // by slot
};

}  // namespace

Status check_barrier(const Plans& plans, const Wiring& wiring, const VerifyOptions& options) {
  MachineOptions machine;
  machine.slots = options.slots;
  machine.rounds = 1;
  Arrivals arrivals(plans);
  TRY(Machine({&plans}, wiring, machine).run(&arrivals));
  return arrivals.check(plans);
}

}  // namespace unisono::verify
