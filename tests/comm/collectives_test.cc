// Every collective x algorithm x type x op x transport x rank count, in place and not, against the
// plain reference. Sampled by default; UNISONO_TEST_FULL=1 runs the whole tables.
#include <algorithm>

#include "algorithms/registry.h"
#include "tests/comm/collective_case.h"
#include "tests/lsan_with_ucx.h"

namespace unisono::testing {
namespace {

const std::vector<int> kRankCounts = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16};
std::vector<int> rank_counts() {
  return sampled(kRankCounts, kRankCounts, {1, 2, 3, 5});
}

// Simulated ranks run one at a time: the sample is smaller.
std::vector<int> simulated_rank_counts() {
  return sampled(kRankCounts, {1, 2, 3, 5, 8}, {1, 2, 5});
}

// Every communicator of it makes workers of UCX, which takes milliseconds a rank.
std::vector<int> ucx_rank_counts() {
  return sampled<std::vector<int>>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {2, 3, 5}, {2, 3});
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names = {""};
  for (const Algorithm& algorithm : algorithms()) names.emplace_back(algorithm.name);
  return names;
}

// Where a forced algorithm lacks a collective the planner chooses freely, which is the run without
// a name.
bool has(const std::string& algorithm, Kind kind, int ranks) {
  const Algorithm* row = find_algorithm(algorithm);
  if (row == nullptr) return true;
  PlanRequest request;
  request.collective = static_cast<Collective>(kind);  // the same list in the same order
  request.ranks = ranks;
  bool supported = row->supports(request);
  request.multicast = false;
  supported = supported || row->supports(request);
  return supported;
}

std::vector<int> roots(Kind kind, int ranks) {
  if (!rooted(kind)) return {0};
  std::vector<int> list = {0, ranks / 2, ranks - 1};
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

class Collectives : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void SetUp() override { SKIP_WITHOUT(transport()); }
  std::string transport() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
};

TEST_P(Collectives, GiveTheReferencesResultWithEveryAlgorithmInPlaceAndNot) {
  const std::vector<size_t> counts = sampled<std::vector<size_t>>(
      {0, 1, 2, 3, 17, 1000, 4097, 65537, 300'001}, {0, 1, 17, 4097, 70'001}, {0, 17, 20'011});
  for (const std::string& algorithm : algorithm_names()) {
    SCOPED_TRACE("algorithm " + algorithm);
    std::vector<Case> cases;
    for (int k = 0; k < kKinds; k++) {
      const Kind kind = static_cast<Kind>(k);
      if (!has(algorithm, kind, ranks())) continue;
      for (const int root : roots(kind, ranks())) {
        for (const size_t count : counts) {
          cases.push_back({kind, uniFloat32, uniSum, count, root, false});
          if (kind != Kind::kAllToAll) cases.push_back({kind, uniInt32, uniMax, count, root, true});
        }
      }
    }
    if (cases.empty()) continue;
    const Ranks world(ranks(), {transport(), algorithm});
    ASSERT_TRUE(world.ok());
    run_cases(world, cases);
  }
}

TEST_P(Collectives, GiveTheReferencesResultForEveryTypeAndOpAtOddCounts) {
  const Ranks world(ranks(), {transport()});
  ASSERT_TRUE(world.ok());
  std::vector<Case> cases;
  for (const Kind kind : {Kind::kAllReduce, Kind::kReduceScatter, Kind::kReduce}) {
    for (int type = 0; type < uniNumTypes; type++) {
      for (int op = 0; op < uniNumOps; op++) {
        const auto t = static_cast<uniDataType_t>(type);
        const auto o = static_cast<uniRedOp_t>(op);
        if (!defined(o, t)) continue;
        const size_t most = (256u << 10) / size_of(t) + 1;  // just past 256 KiB
        for (const size_t count : {size_t{1}, size_t{333}, size_t{5001}, most | 1}) {
          if (count > sampled<size_t>(0, 20'000, 1000) && (type + op) % sampled(1, 4, 16) != 0)
            continue;
          cases.push_back({kind, t, o, count, ranks() - 1, op % 2 == 0});
        }
      }
    }
  }
  run_cases(world, cases);
}

TEST_P(Collectives, MoveEveryTypeUnchanged) {
  const Ranks world(ranks(), {transport()});
  ASSERT_TRUE(world.ok());
  std::vector<Case> cases;
  for (const Kind kind :
       {Kind::kBroadcast, Kind::kAllGather, Kind::kGather, Kind::kScatter, Kind::kAllToAll}) {
    for (int type = 0; type < uniNumTypes; type++) {
      cases.push_back({kind, static_cast<uniDataType_t>(type), uniSum, 1237, ranks() / 2, false});
    }
  }
  run_cases(world, cases);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<std::string, int>>& info) {
  return word_of(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Shm, Collectives,
                         ::testing::Combine(::testing::Values("shm"),
                                            ::testing::ValuesIn(rank_counts())),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Tcp, Collectives,
                         ::testing::Combine(::testing::Values("tcp"),
                                            ::testing::ValuesIn(rank_counts())),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Ucx, Collectives,
                         ::testing::Combine(::testing::Values("ucx:tls=shm", "ucx:tls=tcp"),
                                            ::testing::ValuesIn(ucx_rank_counts())),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Sim, Collectives,
                         ::testing::Combine(::testing::Values("sim"),
                                            ::testing::ValuesIn(simulated_rank_counts())),
                         name_of);

// Long messages on several sockets overtake each other.
INSTANTIATE_TEST_SUITE_P(TcpSockets, Collectives,
                         ::testing::Combine(::testing::Values("tcp:sockets=3"),
                                            ::testing::Values(2, 5)),
                         name_of);

TEST(BigCollectives, SumFloatsExactlyUpTo64MiB) {
  const size_t count = sampled<size_t>(64u << 20, 64u << 20, 4u << 20) / sizeof(float);
  for (const std::string transport :
       {"shm", "tcp", "tcp:sockets=4", "ucx:tls=shm", "ucx:tls=tcp"}) {
    if (!why_not(transport).empty()) continue;
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(transport + " " + std::to_string(ranks));
      const Ranks world(ranks, {transport});
      ASSERT_TRUE(world.ok());
      run_cases(world, {{Kind::kAllReduce, uniFloat32, uniSum, count, 0, false},
                        {Kind::kAllReduce, uniFloat32, uniSum, count - 13, 0, true}});
    }
  }
}

}  // namespace
}  // namespace unisono::testing
