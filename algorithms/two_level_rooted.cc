// Two levels (two_level.cc) for barrier, gather and scatter: one rank of a host speaks for it, the
// root on its own host and the first rank on the others. Barrier: the ranks of a host report to
// their speaker, the speakers meet on a binomial tree, and back. Gather: a speaker collects its
// host's blocks and hands them to the root in one message for each run of neighbouring ranks, so
// that the root takes a message a host instead of one a rank. Scatter is that backwards.
#include <algorithm>
#include <utility>
#include <vector>

#include "algorithms/hosts.h"
#include "algorithms/tree.h"
#include "algorithms/two_level.h"

namespace unisono {
namespace {

constexpr int32_t kLocal = 0, kHosts = 1;  // channel numbers

// Neighbouring ranks of one host: one chunk at the root.
struct Run {
  int32_t first_rank = 0, first_index = 0, count = 0;
};

std::vector<Run> runs_of(const std::vector<int32_t>& ranks) {
  std::vector<Run> runs;
  for (size_t index = 0; index < ranks.size(); ++index) {
    if (!runs.empty() && runs.back().first_rank + runs.back().count == ranks[index])
      ++runs.back().count;
    else
      runs.push_back({ranks[index], static_cast<int32_t>(index), 1});
  }
  return runs;
}

// What one rank knows of who speaks for whom.
struct Speakers {
  HostMap map;
  int32_t root_host = 0;
  int32_t root = 0;

  explicit Speakers(const PlanBuilder& plan)
      : map(host_map(plan.hosts(), plan.me())), root(plan.root()) {
    root_host = host_map(plan.hosts(), root).host;
  }
  const std::vector<int32_t>& local() const { return map.on(map.host); }
  int32_t of(int32_t host) const { return host == root_host ? root : map.on(host).front(); }
  int32_t mine() const { return of(map.host); }
};

void pack_runs(PlanBuilder* plan, const Speakers& speakers) {
  int32_t longest = 1;
  for (const std::vector<int32_t>& ranks : speakers.map.ranks)
    for (const Run& run : runs_of(ranks)) longest = std::max(longest, run.count);
  plan->pack_messages(longest);
}

}  // namespace

void two_level_barrier(PlanBuilder* plan) {
  const HostMap map = host_map(plan->hosts(), plan->me());
  const std::vector<int32_t>& local = map.on(map.host);
  TreePlace place;
  if (map.index > 0) {
    place.parent = local.front();
  } else {
    const TreePlace hosts = binomial_place(map.hosts(), map.host, 0).in_tree();
    if (hosts.parent >= 0) place.parent = map.owner_on(hosts.parent, 0);
    place.children.assign(local.begin() + 1, local.end());
    for (int32_t host : hosts.children) place.children.push_back(map.owner_on(host, 0));
  }
  all_reduce_on_tree(plan, place);
}

void two_level_gather(PlanBuilder* plan) {
  const int8_t receive = plan->lane("receive"), send = plan->lane("send");
  const Speakers speakers(*plan);
  const int32_t me = plan->me();
  pack_runs(plan, speakers);
  if (me != speakers.mine()) {
    plan->step(send, {.sources = {plan->input(0)}, .forward = plan->to(speakers.mine(), kLocal)});
    return;
  }
  // The host's blocks: in the output at the root, in scratch elsewhere.
  for (size_t index = 0; index < speakers.local().size(); ++index) {
    const int32_t rank = speakers.local()[index];
    StepSpec take{.into = plan->is_root()
                              ? plan->output(rank)
                              : PlanBuilder::scratch(receive, static_cast<int32_t>(index)),
                  .length = plan->length(rank)};
    if (rank == me)
      take.sources = {plan->input(0)};
    else
      take.sources = {plan->receive(rank, kLocal)};
    plan->step(receive, std::move(take));
  }
  if (!plan->is_root()) {
    for (const Run& run : runs_of(speakers.local()))
      plan->step(send, {.sources = {PlanBuilder::scratch(receive, run.first_index, run.count)},
                        .forward = plan->to(speakers.root, kHosts),
                        .length = plan->length(run.first_rank, run.count)});
    return;
  }
  for (int32_t host = 0; host < speakers.map.hosts(); ++host) {
    if (host == speakers.root_host) continue;
    for (const Run& run : runs_of(speakers.map.on(host)))
      plan->step(receive, {.sources = {plan->receive(speakers.of(host), kHosts)},
                           .into = plan->output(run.first_rank, run.count)});
  }
}

void two_level_scatter(PlanBuilder* plan) {
  const int8_t receive = plan->lane("receive"), send = plan->lane("send");
  const Speakers speakers(*plan);
  const int32_t me = plan->me();
  pack_runs(plan, speakers);
  if (me != speakers.mine()) {
    plan->step(receive,
               {.sources = {plan->receive(speakers.mine(), kLocal)}, .into = plan->output(0)});
    return;
  }
  if (plan->is_root()) {
    for (int32_t host = 0; host < speakers.map.hosts(); ++host) {
      if (host == speakers.root_host) continue;
      for (const Run& run : runs_of(speakers.map.on(host)))
        plan->step(send, {.sources = {plan->input(run.first_rank, run.count)},
                          .forward = plan->to(speakers.of(host), kHosts)});
    }
  } else {
    for (const Run& run : runs_of(speakers.local()))
      plan->step(receive, {.sources = {plan->receive(speakers.root, kHosts)},
                           .into = PlanBuilder::scratch(receive, run.first_index, run.count),
                           .length = plan->length(run.first_rank, run.count)});
  }
  for (size_t index = 0; index < speakers.local().size(); ++index) {
    const int32_t rank = speakers.local()[index];
    const Chunk block = plan->is_root()
                            ? plan->input(rank)
                            : PlanBuilder::scratch(receive, static_cast<int32_t>(index));
    if (rank != me)
      plan->step(
          send,
          {.sources = {block}, .forward = plan->to(rank, kLocal), .length = plan->length(rank)});
  }
  // Last: in place the own block lies where the output is.
  const int32_t own = speakers.map.index;
  plan->step(receive,
             {.sources = {plan->is_root() ? plan->input(me) : PlanBuilder::scratch(receive, own)},
              .into = plan->output(0),
              .length = plan->length(me)});
}

}  // namespace unisono
