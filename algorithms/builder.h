// PlanBuilder: how an algorithm writes a plan down. It emits steps in one order that is right if a
// single thread runs it, naming a lane for each (rule 10 of docs/plan-machine.md); the builder
// splits that order into lanes, interns channels, and derives every await. Breaking a rule of the
// plan machine is a bug of the algorithm, hence a CHECK.
//
// One builder makes one plan of one rank. Owned by the algorithm's function, one thread, no
// blocking, no failure but CHECK.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "algorithms/numbers.h"
#include "algorithms/plan.h"
#include "algorithms/registry.h"

namespace unisono {

// The next message of a channel, or a local chunk. Implicit, so that a list of sources reads as a
// list of places.
struct Source {
  Source(const Chunk& chunk) { operand.chunk = chunk; }   // NOLINT(runtime/explicit)
  Source(const Operand& received) : operand(received) {}  // NOLINT(runtime/explicit)
  Operand operand;
};

// One step as an algorithm says it (rule 9).
struct StepSpec {
  std::vector<Source> sources{};
  std::optional<Chunk> into{};
  int16_t forward = -1;
  bool final = false;
  // PlanBuilder::length(); only where no chunk of the step tells (received and sent on, or
  // scratch).
  std::optional<Chunk> length{};
};

class PlanBuilder {
 public:
  // `split_blocks`: how many blocks the vector of an all-reduce, reduce, broadcast or barrier is
  // cut into; the other collectives have one block a rank.
  PlanBuilder(std::string_view algorithm, const PlanRequest& request, int32_t split_blocks = 1);

  int32_t n() const { return plan_.ranks; }
  int32_t me() const { return plan_.rank; }
  int32_t root() const { return plan_.root; }
  bool is_root() const { return plan_.rank == plan_.root; }
  // As in PlanRequest.
  std::span<const int32_t> hosts() const { return hosts_; }
  // The rank `distance` (any sign) places after this one, on the ring of ranks.
  int32_t after(int32_t distance) const { return wrap(me() + distance, n()); }
  // One send reaches everybody: a channel of several readers, or there is just one other rank.
  bool one_send_reaches_all() const { return multicast_ || n() == 2; }

  // Lanes exist on every rank in the order of these calls, used or not.
  int8_t lane(std::string_view name);

  // Blocks count modulo the buffer's number of blocks, so any sign will do.
  Chunk input(int32_t block, int32_t blocks = 1) const;
  Chunk output(int32_t block, int32_t blocks = 1) const;
  static Chunk scratch(int8_t owner, int32_t block, int32_t blocks = 1);
  // The length of these blocks of the whole: of all ranks' where each rank has one.
  Chunk length(int32_t block, int32_t blocks = 1) const;

  // Channel ends. `number` keeps channels of one pair apart that different lanes use.
  int16_t to(int32_t peer, int32_t number = 0);
  Operand receive(int32_t peer, int32_t number = 0);
  // Ends of the writer's channel to all others; without multicast its single-reader channel to this
  // rank.
  int16_t to_all(int32_t number = 0);  // one_send_reaches_all() must hold
  Operand receive_shared(int32_t writer, int32_t number = 0);

  void step(int8_t lane, StepSpec spec);
  // `spec` (without forward), its result sent to every other rank: in one step, or without
  // multicast in n-1 sends.
  void step_to_all(int8_t lane, StepSpec spec, int32_t number = 0);

  // body(0) ... body(times-1); recorded as a repeat of every lane that it adds to (rule 12). Does
  // not nest.
  template <class Body>
  void repeat(int32_t times, Body body) {
    begin_repeat();
    for (int32_t i = 0; i < times; ++i) {
      body(i);
      end_iteration(i);
    }
    end_repeat(times);
  }

  // body(rank) for every other rank, from the next one on, as a repeat.
  template <class Body>
  void repeat_others(Body body) {
    repeat(n() - 1, [&](int32_t i) { body(after(1 + i)); });
  }

  // The most blocks that a message of any rank packs; must be said alike on every rank (rule 6). 1
  // unless said.
  void pack_messages(int32_t blocks) { plan_.message_blocks = blocks; }

  // Derives the awaits and hands the plan over; the builder is empty afterwards.
  Plan finish(bool late, bool reproducible);

 private:
  int16_t channel(ChannelId id);
  Chunk length_of(const StepSpec& spec) const;
  void check_step(int8_t lane, const Step& step);
  void begin_repeat();
  void end_iteration(int32_t iteration);
  void end_repeat(int32_t times);

  Plan plan_;
  bool multicast_;
  std::span<const int32_t> hosts_;
  std::map<ChannelId, int16_t> channel_index_;
  std::vector<int8_t> reading_lane_, writing_lane_;  // by channel; -1: none yet
  bool repeating_ = false;
  std::vector<int32_t> repeat_first_, repeat_body_;  // by lane
};

// Input copied to output: what every collective is on one rank.
Plan copy_plan(std::string_view algorithm, const PlanRequest& request, bool late,
               bool reproducible);

}  // namespace unisono
