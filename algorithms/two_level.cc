// Two levels: what crosses between hosts does so once a host. Let s be the least number of ranks on
// a host. The first s ranks of each host are owners; the vector is cut into s parts, and owner i
// handles part i, in its host and against the owners i of the other hosts, so that s streams share
// the wire however unequal the hosts are. A host's further ranks hand in and take out through them.
// All-reduce: every rank hands each owner of its host its part; the owner folds these in one step
// (lane "fold"); the owners i of all hosts run a ring over their part, cut into a block a host;
// then the owner hands the sum out. Broadcast: the root hands the owners of its host their parts,
// part i goes from owner i to owner i along a chain of the hosts, and each owner hands it out.
// Reduce is that backwards, every owner folding its host's inputs and its chain's partial sum in
// one step.
// (two_level_blocks.cc and two_level_rooted.cc open with the other collectives.)
//
// Notation: n ranks on H hosts, m of them on this one, S bytes.
//   all-reduce: an owner sends m-1 + 2 (H-1) + m-1 messages and (s-1)/s S + 2 (H-1)/H S/s + (m-1)
//   S/s; any other rank sends s messages, S in all, and receives as many. Between hosts a host
//   sends and receives 2 (H-1)/H S, against 2 (n-1)/n S for a ring. broadcast, reduce: a host sends
//   and receives S at most; an owner moves S/s to each rank of its host.
// Wins where hosts are joined by a slower link than ranks of a host are. A partial sum is rounded
// once a host.
//
// Paper: Bayatpour, Chakraborty, Subramoni, Lu, Panda: Scalable reduction collectives with
// data partitioning-based multi-leader design (DPML, SC 2017).
#include <utility>

#include "algorithms/hosts.h"
#include "algorithms/ring_steps.h"
#include "algorithms/rows.h"
#include "algorithms/tree.h"
#include "algorithms/two_level.h"
#include "algorithms/ways.h"

namespace unisono {
namespace {

constexpr int32_t kHandIn = 0, kPartials = 1, kResults = 2, kHandOut = 3;  // all-reduce's channels

bool has_two_levels(const PlanRequest& request) {
  if (request.ranks < 3 || request.hosts.size() != static_cast<size_t>(request.ranks)) return false;
  const int32_t hosts = host_map(request.hosts, 0).hosts();
  return hosts > 1 && hosts < request.ranks;
}

int32_t block_an_owner(const PlanRequest& request) {
  return host_map(request.hosts, 0).owners;
}
int32_t block_an_owner_and_host(const PlanRequest& request) {
  const HostMap map = host_map(request.hosts, 0);
  return map.owners * map.hosts();
}

void all_reduce(PlanBuilder* plan) {
  const int8_t in = plan->lane("hand-in"), fold = plan->lane("fold"),
               scatter = plan->lane("reduce-scatter"), gather = plan->lane("all-gather"),
               out = plan->lane("hand-out"), take = plan->lane("take-out");
  const HostMap map = host_map(plan->hosts(), plan->me());
  const std::vector<int32_t>& local = map.on(map.host);
  const int32_t hosts = map.hosts(), mine = map.index * hosts;  // first block of the own part
  plan->pack_messages(hosts);
  for (int32_t owner = 0; owner < map.owners; ++owner)
    if (owner != map.index)
      plan->step(in, {.sources = {plan->input(owner * hosts, hosts)},
                      .forward = plan->to(local[static_cast<size_t>(owner)], kHandIn)});
  if (map.index < map.owners) {
    const bool alone = local.size() == 1;
    StepSpec folded{.sources = {plan->input(mine, hosts)}, .into = plan->output(mine, hosts)};
    for (int32_t rank : local)
      if (rank != plan->me()) folded.sources.push_back(plan->receive(rank, kHandIn));
    if (!alone) plan->step(fold, std::move(folded));
    RingPlace ring{.size = hosts,
                   .me = map.host,
                   .left = map.owner_on(wrap(map.host - 1, hosts), map.index),
                   .right = map.owner_on(wrap(map.host + 1, hosts), map.index),
                   .first = mine,
                   .number = kPartials};
    const Chunk own = plan->output(mine + map.host);
    ring_reduce_scatter(
        plan, scatter, ring,
        [&](int32_t block) { return alone ? plan->input(block) : plan->output(block); }, own);
    ring.number = kResults;
    ring_all_gather(plan, gather, ring, {.sources = {own}});
    for (int32_t rank : local)
      if (rank != plan->me())
        plan->step(out,
                   {.sources = {plan->output(mine, hosts)}, .forward = plan->to(rank, kHandOut)});
  }
  for (int32_t owner = 0; owner < map.owners; ++owner)
    if (owner != map.index)
      plan->step(take, {.sources = {plan->receive(local[static_cast<size_t>(owner)], kHandOut)},
                        .into = plan->output(owner * hosts, hosts)});
}

// The tree of part `owner`: the root, the owner on the root's host, the owners along the chain of
// hosts, and below each of them the other ranks of its host.
TreePlace place_for(const PlanBuilder& plan, const HostMap& map, int32_t root_host, int32_t owner) {
  const int32_t me = plan.me(), hosts = map.hosts();
  const int32_t distance = wrap(map.host - root_host, hosts);  // along the chain
  const int32_t top = map.owner_on(map.host, owner);
  TreePlace place;
  if (me == plan.root() && me != top) return {.children = {top}};
  if (me != top) return {.parent = top};
  if (distance > 0)
    place.parent = map.owner_on(wrap(map.host - 1, hosts), owner);
  else if (me != plan.root())
    place.parent = plan.root();
  for (int32_t rank : map.on(map.host))
    if (rank != me && rank != plan.root()) place.children.push_back(rank);
  if (distance + 1 < hosts)  // sent to first
    place.children.push_back(map.owner_on(wrap(map.host + 1, hosts), owner));
  return place;
}

int32_t host_of(const HostMap& map, int32_t rank) {
  for (int32_t host = 0; host < map.hosts(); ++host)
    for (int32_t one : map.on(host))
      if (one == rank) return host;
  return 0;
}

// Calls emit(part, place) for every part, the own one first or last: an owner passes its own part
// down before it takes others', and hands in others' before it folds its own.
template <class Emit>
void for_each_part(const PlanBuilder& plan, const HostMap& map, bool own_first, Emit emit) {
  const int32_t root_host = host_of(map, plan.root());
  for (int32_t i = 0; i < map.owners; ++i) {
    const int32_t part = (map.index + i + (own_first ? 0 : 1)) % map.owners;
    emit(part, place_for(plan, map, root_host, part));
  }
}

void broadcast(PlanBuilder* plan) {
  const int8_t receive = plan->lane("receive"), send = plan->lane("send"),
               take = plan->lane("take-out");
  const HostMap map = host_map(plan->hosts(), plan->me());
  for_each_part(*plan, map, true, [&](int32_t part, const TreePlace& place) {
    TreeLanes lanes{.block = part, .down = part};  // a channel a part: two parts may share an edge
    lanes.receive = place.children.empty() ? take : receive;
    lanes.send = send;
    pass_down(plan, place, lanes);
  });
}

void reduce(PlanBuilder* plan) {
  const int8_t fold = plan->lane("fold"), in = plan->lane("hand-in"), last = plan->lane("root");
  const HostMap map = host_map(plan->hosts(), plan->me());
  for_each_part(*plan, map, false, [&](int32_t part, const TreePlace& place) {
    TreeLanes lanes{.block = part, .up = part};
    lanes.reduce = place.children.empty() ? in : fold;
    if (plan->is_root() && part != map.index) lanes.reduce = last;
    fold_up(plan, place, lanes);
  });
}

constexpr About kAbout{"two_level", "Bayatpour et al. 2017 (DPML)"};
constexpr Way kWays[] = {
    {Collective::kAllReduce, all_reduce, block_an_owner_and_host, true, false, has_two_levels},
    {Collective::kBroadcast, broadcast, block_an_owner, true, false, has_two_levels},
    {Collective::kReduce, reduce, block_an_owner, true, false, has_two_levels},
    {Collective::kAllGather, two_level_all_gather, one_block, true, false, has_two_levels},
    {Collective::kReduceScatter, two_level_reduce_scatter, one_block, true, false, has_two_levels},
    {Collective::kBarrier, two_level_barrier, one_block, true, false, has_two_levels},
    {Collective::kGather, two_level_gather, one_block, true, false, has_two_levels},
    {Collective::kScatter, two_level_scatter, one_block, true, false, has_two_levels}};

// The wire is the one between hosts, which all owners of a host share; what stays in a host counts
// as copies.
Cost cost(const PlanRequest& request) {
  const HostMap map = host_map(request.hosts, 0);
  const double hosts = map.hosts(), owners = map.owners, largest = map.largest;
  const double local = largest / owners, n = request.ranks;
  const double turns = (map.largest + map.owners - 1) / map.owners;
  // Whatever does not start (end) on the emptiest host comes in (goes out).
  const double crossing = (n - owners) / n;
  switch (request.collective) {
    case Collective::kAllReduce:
      return {.messages = 2 * (hosts - 1) + 2,
              .wire_bytes = 2 * (hosts - 1) / hosts,
              .reduce_bytes = local + 2 * (hosts - 1) / hosts / owners,
              .copy_bytes = 2 * local};
    case Collective::kBarrier:
      return {.messages = 2.0 * ceil_log2(map.hosts()) + 2};
    case Collective::kGather:
    case Collective::kScatter:  // the root's messages, and the copy through a speaker's scratch
      return {.messages = hosts, .wire_bytes = (n - largest) / n, .copy_bytes = 1};
    case Collective::kBroadcast:
      return {.messages = hosts + 1, .wire_bytes = 1, .copy_bytes = 1 + local};
    case Collective::kAllGather:
      return {.messages = turns * (hosts - 1) + 2, .wire_bytes = crossing, .copy_bytes = 1 + local};
    case Collective::kReduceScatter:
      return {.messages = turns * (hosts - 1) + 2,
              .wire_bytes = crossing,
              .reduce_bytes = (largest + 1) / owners,
              .copy_bytes = 1};
    default:
      return {
          .messages = hosts + 1, .wire_bytes = 1, .reduce_bytes = local + 2, .copy_bytes = local};
  }
}

}  // namespace

Algorithm two_level_row() {
  return WaysOf<kAbout, kWays, cost>::row();
}

}  // namespace unisono
