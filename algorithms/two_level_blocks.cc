// Two levels (two_level.cc) for all-gather and reduce-scatter, where each block belongs to a rank.
// The block of the rank with index q on its host is carried by the owners q mod s of the other
// hosts. All-gather: a rank sends its block to the ranks of its host and to the carrier on the next
// host; carriers pass it on round the hosts, each handing it out to the ranks of its host.
// Reduce-scatter is that backwards: the block starts at the carrier on the next host, each carrier
// folds its host's inputs and the partial sum from the host before in one step, the block's rank
// does it last. Blocks go in turns: in turn i, those of the ranks with q / s = i, at most one a
// carrier and host, so that no rank sends another one more than a message before it takes what the
// others send.
#include <algorithm>
#include <utility>

#include "algorithms/hosts.h"
#include "algorithms/two_level.h"

namespace unisono {
namespace {

constexpr int32_t kLocal = 0, kHosts = 1, kCarried = 2;  // channel numbers

// What one rank knows of all blocks.
class Blocks {
 public:
  explicit Blocks(const PlanBuilder& plan) : map_(host_map(plan.hosts(), plan.me())) {}

  const HostMap& map() const { return map_; }
  const std::vector<int32_t>& local() const { return map_.on(map_.host); }
  int32_t turns() const { return (map_.largest + map_.owners - 1) / map_.owners; }
  int32_t my_turn() const { return map_.index / map_.owners; }
  bool carries() const { return map_.index < map_.owners; }
  // The host `distance` before this one.
  int32_t host_before(int32_t distance) const { return wrap(map_.host - distance, map_.hosts()); }
  int32_t carrier_before(int32_t owner) const { return map_.owner_on(host_before(1), owner); }
  int32_t carrier_after(int32_t owner) const { return map_.owner_on(host_before(-1), owner); }
  // The rank of this turn on a host whose block the owners `owner` carry; -1: none.
  int32_t block(int32_t turn, int32_t host, int32_t owner) const {
    const auto q = static_cast<size_t>(turn * map_.owners + owner);
    return q < map_.on(host).size() ? map_.on(host)[q] : -1;
  }

 private:
  HostMap map_;
};

template <class Body>
void for_each_owner(const Blocks& blocks, Body body) {
  for (int32_t owner = 0; owner < blocks.map().owners; ++owner) body(owner);
}

struct GatherLanes {
  int8_t own, hosts, out, take;
};

// Sends of the own block.
void start(PlanBuilder* plan, const Blocks& blocks, const GatherLanes& lanes) {
  const int32_t owner = blocks.map().index % blocks.map().owners;
  plan->step(lanes.hosts, {.sources = {plan->input(0)},
                           .into = plan->output(plan->me()),
                           .forward = plan->to(blocks.carrier_after(owner), kHosts)});
  for (int32_t rank : blocks.local())
    if (rank != plan->me())
      plan->step(lanes.own, {.sources = {plan->input(0)}, .forward = plan->to(rank, kLocal)});
}

// A carrier's part of a turn between the hosts.
void carry(PlanBuilder* plan, const Blocks& blocks, int32_t turn, int8_t lane) {
  const int32_t hosts = blocks.map().hosts(), owner = blocks.map().index;
  for (int32_t distance = 1; distance < hosts; ++distance) {
    const int32_t block = blocks.block(turn, blocks.host_before(distance), owner);
    if (block < 0) continue;
    const int32_t from = distance == 1 ? block : blocks.carrier_before(owner);
    StepSpec relay{.sources = {plan->receive(from, kHosts)}, .into = plan->output(block)};
    if (distance + 1 < hosts) relay.forward = plan->to(blocks.carrier_after(owner), kHosts);
    plan->step(lane, std::move(relay));
  }
}

// What came from the host `distance` before, within this host.
void spread(PlanBuilder* plan, const Blocks& blocks, int32_t turn, int32_t distance,
            const GatherLanes& lanes) {
  const int32_t host = blocks.host_before(distance), me = plan->me();
  const int32_t mine = blocks.carries() ? blocks.block(turn, host, blocks.map().index) : -1;
  for (int32_t rank : blocks.local())
    if (mine >= 0 && rank != me)
      plan->step(lanes.out, {.sources = {plan->output(mine)}, .forward = plan->to(rank, kCarried)});
  for_each_owner(blocks, [&](int32_t owner) {
    const int32_t block = blocks.block(turn, host, owner);
    const int32_t carrier = blocks.map().owner_on(blocks.map().host, owner);
    if (block >= 0 && carrier != me)
      plan->step(lanes.take,
                 {.sources = {plan->receive(carrier, kCarried)}, .into = plan->output(block)});
  });
}

struct ReduceLanes {
  int8_t in, fold;
};

// Hands this rank's input of a block to whoever folds it on this host, or folds it if that is this
// rank: the block's own rank, or its carrier.
void reduce_block(PlanBuilder* plan, const Blocks& blocks, int32_t block, int32_t owner,
                  int32_t distance, const ReduceLanes& lanes, bool folds) {
  const int32_t hosts = blocks.map().hosts(), me = plan->me();
  const bool at_home = distance == hosts;
  const int32_t folder = at_home ? block : blocks.map().owner_on(blocks.map().host, owner);
  const int32_t number = at_home ? kLocal : kCarried;
  if (folds != (folder == me)) return;
  if (!folds) {
    plan->step(lanes.in, {.sources = {plan->input(block)}, .forward = plan->to(folder, number)});
    return;
  }
  StepSpec fold{.sources = {plan->input(block)}};
  for (int32_t rank : blocks.local())
    if (rank != me) fold.sources.push_back(plan->receive(rank, number));
  // From the carrier on the host before, but for the first carrier.
  if (distance > 1) fold.sources.push_back(plan->receive(blocks.carrier_before(owner), kHosts));
  if (at_home) {
    fold.into = plan->output(0);
    fold.final = true;
  } else {
    const bool next_is_home = distance + 1 == hosts;
    fold.forward = plan->to(next_is_home ? block : blocks.carrier_after(owner), kHosts);
  }
  plan->step(lanes.fold, std::move(fold));
}

}  // namespace

void two_level_all_gather(PlanBuilder* plan) {
  const GatherLanes lanes{.own = plan->lane("own"),
                          .hosts = plan->lane("hosts"),
                          .out = plan->lane("hand-out"),
                          .take = plan->lane("take-out")};
  const Blocks blocks(*plan);
  for (int32_t turn = 0; turn < blocks.turns(); ++turn) {
    if (turn == blocks.my_turn()) start(plan, blocks, lanes);
    if (blocks.carries()) carry(plan, blocks, turn, lanes.hosts);
    for_each_owner(blocks, [&](int32_t owner) {
      const int32_t block = blocks.block(turn, blocks.map().host, owner);
      if (block >= 0 && block != plan->me())
        plan->step(lanes.take,
                   {.sources = {plan->receive(block, kLocal)}, .into = plan->output(block)});
    });
    for (int32_t distance = 1; distance < blocks.map().hosts(); ++distance)
      spread(plan, blocks, turn, distance, lanes);
  }
}

void two_level_reduce_scatter(PlanBuilder* plan) {
  const ReduceLanes lanes{.in = plan->lane("hand-in"), .fold = plan->lane("fold")};
  const Blocks blocks(*plan);
  for (int32_t turn = 0; turn < blocks.turns(); ++turn)
    for (int32_t distance = 1; distance <= blocks.map().hosts(); ++distance)
      for (bool folds : {false, true})
        for_each_owner(blocks, [&](int32_t owner) {
          const int32_t block = blocks.block(turn, blocks.host_before(distance), owner);
          if (block >= 0) reduce_block(plan, blocks, block, owner, distance, lanes, folds);
        });
}

}  // namespace unisono
