// Every algorithm in the registry, proved. UNISONO_TEST_FULL=1: over 1..130 ranks and samples up to
// 1024; else over a sample that a minute is enough for.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <string>

#include "algorithms/registry.h"
#include "algorithms/verify/random_run.h"
#include "algorithms/verify/verify.h"
#include "tests/sample.h"

namespace unisono {
namespace {

using Plans = std::vector<Plan>;

using testing::full;
using testing::sampled;

std::vector<int32_t> sizes() {
  std::vector<int32_t> all;
  for (int32_t n = 1; n <= sampled(130, 9, 7); ++n) all.push_back(n);
  const std::vector<int32_t> samples = sampled<std::vector<int32_t>>(
      {255, 256, 257, 512, 1000, 1024}, {12, 15, 16, 17, 31, 32, 33, 64, 130, 256, 1000},
      {12, 16, 17, 33, 130});
  all.insert(all.end(), samples.begin(), samples.end());
  return all;
}

// Most steps of all ranks together that are proved in a sample.
size_t most_steps(int32_t n) {
  return full() || n <= 9 ? SIZE_MAX : 12000;
}

// Sets of more steps than this are worth a line: the largest have six million.
constexpr size_t kLarge = 300000;

Plans built(const Algorithm& algorithm, PlanRequest request) {
  Plans plans;
  for (request.rank = 0; request.rank < request.ranks; ++request.rank) {
    plans.push_back(algorithm.build(request));
  }
  return plans;
}

// Rank 0 and the middle one stand for all: what the whole set may cost is judged before it is
// built.
size_t steps_about(const Algorithm& algorithm, PlanRequest request) {
  size_t steps = 0;
  for (int32_t rank : {request.root, (request.root + request.ranks / 2) % request.ranks}) {
    request.rank = rank;
    const size_t one = algorithm.build(request).order.size();
    steps += rank == request.root && has_root(request.collective)
                 ? one
                 : one * static_cast<size_t>(request.ranks);
  }
  return steps;
}

std::vector<int32_t> roots(Collective collective, int32_t ranks) {
  if (!has_root(collective)) return {0};
  std::vector<int32_t> all = {0};
  if (ranks > 1) all.push_back(ranks - 1);
  if (ranks > 2) all.push_back(ranks / 2);
  return all;
}

// Proved for the v-variants too; of an all-to-all no plan is used for one.
bool takes_unequal_blocks(const Algorithm& algorithm, PlanRequest request) {
  request.unequal_blocks = true;
  return request.collective != Collective::kAllToAll && algorithm.supports(request);
}

bool needs_hosts(const Algorithm& algorithm, Collective collective) {
  const int32_t two_hosts[] = {0, 0, 1};
  PlanRequest request{.collective = collective, .ranks = 3};
  const bool alone = algorithm.supports(request);
  request.hosts = two_hosts;
  return !alone && algorithm.supports(request);
}

// Maps of ranks to hosts for what needs more than one host; one empty map for all others.
std::vector<std::vector<int32_t>> host_maps(const Algorithm& algorithm, Collective collective,
                                            int32_t ranks) {
  if (!needs_hosts(algorithm, collective)) return {{}};
  std::vector<std::vector<int32_t>> maps;
  const auto add = [&](auto host_of) {
    std::vector<int32_t> map;
    for (int32_t rank = 0; rank < ranks; ++rank) map.push_back(host_of(rank));
    if (std::find(maps.begin(), maps.end(), map) == maps.end()) maps.push_back(map);
  };
  add([&](int32_t rank) { return rank < (ranks + 1) / 2 ? 7 : 3; });  // 3+2
  add([&](int32_t rank) { return rank < 1 ? 0 : 1; });                // 1+4
  if (ranks > (full() ? 33 : 9)) return maps;
  add([&](int32_t rank) { return rank / 2; });                      // 2+2+1
  add([&](int32_t rank) { return rank % 3; });                      // placed round robin
  add([&](int32_t rank) { return rank % 4 == 1 ? 5 : rank / 8; });  // and unequal
  return maps;
}

template <class Visit>
void for_each_request(const Algorithm& algorithm, int32_t ranks, Visit visit) {
  for (int c = 0; c < kCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    for (const std::vector<int32_t>& hosts : host_maps(algorithm, collective, ranks)) {
      for (int32_t root : roots(collective, ranks)) {
        for (bool multicast : {true, false}) {
          const PlanRequest request{collective, ranks, 0, root, multicast, hosts};
          if (algorithm.supports(request)) visit(request);
        }
      }
    }
  }
}

// What has been proved for one of them holds for the other.
bool same(const Plan& a, const Plan& b) {
  const auto same_steps = [](const Lane& one, const Lane& other) {
    return one.steps == other.steps;
  };
  return a.blocks == b.blocks && a.channels == b.channels && a.order == b.order &&
         a.scratch_blocks == b.scratch_blocks && a.message_blocks == b.message_blocks &&
         a.late == b.late && a.reproducible == b.reproducible &&
         std::equal(a.lanes.begin(), a.lanes.end(), b.lanes.begin(), b.lanes.end(), same_steps);
}

// Whether the algorithm's plans for `request` are these. One rank at a time: they may be large.
bool are_plans_of(const Plans& plans, const Algorithm& algorithm, PlanRequest request) {
  for (request.rank = 0; request.rank < request.ranks; ++request.rank) {
    if (!same(plans[static_cast<size_t>(request.rank)], algorithm.build(request))) return false;
  }
  return true;
}

size_t steps_of(const Plans& plans) {
  size_t steps = 0;
  for (const Plan& plan : plans) steps += plan.order.size();
  return steps;
}

class VerifyAlgorithms : public ::testing::TestWithParam<const char*> {};

TEST_P(VerifyAlgorithms, AreProved) {
  const Algorithm& algorithm = *find_algorithm(GetParam());
  int proved = 0, left_out = 0;
  for (int32_t n : sizes()) {
    for_each_request(algorithm, n, [&](const PlanRequest& request) {
      if (most_steps(n) != SIZE_MAX && steps_about(algorithm, request) > most_steps(n)) {
        ++left_out;
        return;
      }
      VerifyOptions options;
      options.multicast = request.multicast;
      options.unequal_blocks = takes_unequal_blocks(algorithm, request);
      const Plans plans = built(algorithm, request);
      ++proved;
      if (!request.multicast) {
        PlanRequest before = request;
        before.multicast = true;
        // Proved a moment ago; it remains that no channel has several readers.
        const auto shared = [](const ChannelId& id) { return id.reader == kAllButWriter; };
        const auto uses_shared = [&](const Plan& plan) {
          return std::any_of(plan.channels.begin(), plan.channels.end(), shared);
        };
        const bool none = std::none_of(plans.begin(), plans.end(), uses_shared);
        if (none && are_plans_of(plans, algorithm, before)) return;
      }
      const std::clock_t start = std::clock();
      const Status status = verify_plans(plans, options);
      EXPECT_TRUE(status.ok()) << status.message();
      if (const size_t steps = steps_of(plans); steps > kLarge) {
        printf("  %s of %d ranks, root %d%s: %zu steps in %.1f s of a processor\n",
               collective_name(request.collective), n, request.root,
               request.multicast ? "" : ", no multicast", steps,
               static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
      }
    });
  }
  EXPECT_GT(proved, 9);
  printf("%s: %d sets of plans proved, %d too large for this run\n", algorithm.name, proved,
         left_out);
}

TEST_P(VerifyAlgorithms, FollowEachOtherOverTheSameChannels) {
  for (int32_t n = 1; n <= 9; ++n) {
    for_each_request(*find_algorithm(GetParam()), n, [&](const PlanRequest& request) {
      const Plans first = built(*find_algorithm(GetParam()), request);
      for (const Algorithm& other : algorithms()) {
        if (!other.supports(request)) continue;
        const Status status = verify_sequence(first, built(other, request));
        EXPECT_TRUE(status.ok()) << "then " << other.name << ": " << status.message();
      }
    });
  }
}

TEST_P(VerifyAlgorithms, ComputeRightOnRandomDataInRandomOrder) {
  const Algorithm& algorithm = *find_algorithm(GetParam());
  const uint64_t base = 20240611;
  printf("seed %llu\n", static_cast<unsigned long long>(base));
  RandomRunOptions run;
  run.seed = base;
  for (int32_t n = 1; n <= 9; ++n) {
    for_each_request(algorithm, n, [&](const PlanRequest& request) {
      const Plans plans = built(algorithm, request);
      for (InPlace form : {InPlace::kNone, InPlace::kAll, InPlace::kEveryOther}) {
        ++run.seed;
        run.in_place = form;
        run.count = run.seed % 13;
        run.slice_elements = 1 + run.seed % 3;
        run.late = plans[0].late && run.seed % 2 == 0;
        run.single_thread = !run.late && run.seed % 5 == 0;
        const Status status = random_run(plans, run);
        EXPECT_TRUE(status.ok()) << algorithm.name << " " << collective_name(request.collective)
                                 << " of " << n << " ranks, root " << request.root << ", seed "
                                 << run.seed << ": " << status.message();
      }
    });
  }
}

std::vector<const char*> names() {
  std::vector<const char*> all;
  for (const Algorithm& algorithm : algorithms()) all.push_back(algorithm.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Registry, VerifyAlgorithms, ::testing::ValuesIn(names()),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace unisono
