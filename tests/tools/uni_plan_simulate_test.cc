// The simulator against closed formulas: a time that nobody can work out otherwise proves nothing.
#include "tools/uni_plan/simulator.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "tools/uni_plan/schedule.h"

namespace unisono::uni_plan {
namespace {

// Figures of a network whose processors cost nothing.
Topology bare(int32_t hosts, int32_t ranks_per_host = 1) {
  Topology t;
  t.hosts = hosts;
  t.ranks_per_host = ranks_per_host;
  t.nic = {8, 10};       // 1000 bytes a microsecond
  t.memory = {80, 0.5};  // 10,000
  t.overhead_us = t.reduce_gigabytes_per_s = t.copy_gigabytes_per_s = 0;
  t.slice_bytes = 64 << 20;  // one round unless a test says otherwise
  return t;
}

struct Trial {
  const char* algorithm;
  Collective collective;
  uint64_t bytes;
  bool whole = false;
  uint64_t most_rounds = 96;
};

SimulatedTime simulated(const Topology& topology, const Trial& trial) {
  const std::vector<int32_t> host_of = topology.host_of_ranks();
  const PlanRequest request{
      .collective = trial.collective, .ranks = topology.ranks(), .hosts = host_of};
  const auto program = compile_program(trial.algorithm, request, topology, {.whole = trial.whole});
  EXPECT_TRUE(program.ok()) << program.status().message();
  if (!program.ok()) return {};
  SimulatedCall call{.elements = trial.bytes / 4};
  if (program->rule == BlockRule::kWhole) call.elements /= static_cast<uint64_t>(topology.ranks());
  return simulate_call(*program, topology, call, {.most_rounds = trial.most_rounds});
}

TEST(Simulator, ARingOnAUniformTopologyTakesTheClosedFormula) {
  for (const int32_t n : {2, 3, 4, 8, 16, 64}) {
    for (const uint64_t block : {64, 64 << 10, 1 << 20}) {
      Topology t = bare(n);
      const double hops = n - 1, m = static_cast<double>(block);
      const Trial trial{"ring", Collective::kAllReduce, block * static_cast<uint64_t>(n), true};
      const double bare_us = 2 * hops * (10 + m / 1000);
      EXPECT_NEAR(simulated(t, trial).us, bare_us, bare_us * 0.01) << n << " ranks, " << block;

      t.overhead_us = 2;
      t.reduce_gigabytes_per_s = 5;
      t.copy_gigabytes_per_s = 4;
      t.message_gigabytes_per_s = 2;
      // Each of a hop's messages costs both ends 2 us and m at 2 GB/s; a reduction reads 2 m, a
      // copy m.
      const double us = bare_us + 2 * hops * (4 + 2 * m / 2000) + hops * (2 * m / 5000 + m / 4000);
      EXPECT_NEAR(simulated(t, trial).us, us, us * 0.01) << n << " ranks, " << block;
    }
  }
}

TEST(Simulator, RanksThatShareCoresTakeTurns) {
  // Where the network costs nothing and only messages cost, a core is never idle.
  for (const int32_t n : {4, 8})
    for (const int32_t cores : {1, 2, 4}) {
      Topology t = bare(n);
      t.nic = {1e9, 0};
      t.overhead_us = 2;
      t.cores = cores;
      const double us = 2. * n * (n - 1) * 4 / cores;  // messages, each of 2 us at either end
      const Trial trial{"ring", Collective::kAllReduce, 64 * static_cast<uint64_t>(n)};
      EXPECT_NEAR(simulated(t, trial).us, us, us * 0.01) << n << " ranks, " << cores << " cores";
    }
  Topology t = bare(2);
  t.overhead_us = 2;
  t.cores = 1;
  t.switch_us = 35;
  const Trial trial{"binomial_tree", Collective::kBroadcast, 64};
  EXPECT_NEAR(simulated(t, trial).us, 2 + 10 + 35 + 2, 0.1);
  t.cores = 2;  // nobody switches
  EXPECT_NEAR(simulated(t, trial).us, 2 + 10 + 2, 0.1);
}

// Each rank sends all that it has to send in one turn, and receives in that or in one more.
TEST(Simulator, ARankKeepsItsCoreWhileItHasSomethingToDo) {
  for (const int32_t n : {2, 4, 8}) {
    Topology t = bare(n);
    t.nic = {1e9, 1};
    t.overhead_us = 2;
    t.cores = 1;
    t.switch_us = 100;  // a message is there before the next rank runs
    const Trial trial{"pairwise", Collective::kAllToAll, 64 * static_cast<uint64_t>(n)};
    const double turns = 2. * n - 1, us = n * (n - 1) * 4 + (turns - 1) * t.switch_us;
    EXPECT_NEAR(simulated(t, trial).us, us, 1) << n << " ranks";
    t.overhead_us = 4000;  // longer than a turn, after which the others come first
    if (n == 2) continue;
    EXPECT_GT(simulated(t, trial).us, n * (n - 1) * 8000 + turns * t.switch_us);
  }
}

TEST(Simulator, ABinomialTreesBroadcastTakesItsDepth) {
  for (const int32_t depth : {1, 2, 3, 5, 10}) {
    const Trial trial{"binomial_tree", Collective::kBroadcast, 100'000};
    const double us = depth * (10 + 100.);
    EXPECT_NEAR(simulated(bare(1 << depth), trial).us, us, us * 0.01) << depth;
  }
}

TEST(Simulator, HalvingAndDoublingSendLessEachTime) {
  for (const int32_t depth : {1, 2, 3, 6}) {
    const int32_t p = 1 << depth;
    const uint64_t bytes = uint64_t{4096} << depth;
    const Trial trial{"recursive_halving", Collective::kAllReduce, bytes};
    const double us = 2 * (depth * 10. + (p - 1.) / p * static_cast<double>(bytes) / 1000);
    EXPECT_NEAR(simulated(bare(p), trial).us, us, us * 0.01) << depth;
  }
}

// Ranks 0, 1 on one host and 2, 3 on the other: one exchange in memory, one in which both ranks of
// a host want its card.
TEST(Simulator, RanksOfAHostShareItsCard) {
  const Trial trial{"recursive_doubling", Collective::kAllReduce, 1'000'000};
  const double shared = (0.5 + 100) + (10 + 2 * 1000.), alone = 2 * (10 + 1000.);
  EXPECT_NEAR(simulated(bare(2, 2), trial).us, shared, shared * 0.01);
  EXPECT_NEAR(simulated(bare(4), trial).us, alone, alone * 0.01);
}

TEST(Simulator, HostsOfARackShareItsUplink) {
  Topology t = bare(4);
  t.hosts_per_rack = 2;
  t.uplink = {8, 3};  // as fast as one card
  const Trial trial{"recursive_doubling", Collective::kAllReduce, 1'000'000};
  const double us = (10 + 1000.) + (13 + 2 * 1000.);
  EXPECT_NEAR(simulated(t, trial).us, us, us * 0.01);
}

TEST(Simulator, OneSlowHostSlowsTheRing) {
  Topology t = bare(4);
  const Trial trial{"ring", Collective::kAllReduce, 4'000'000};
  const double even = simulated(t, trial).us;
  t.slow_hosts = {{2, 0.8}};
  const double us = simulated(t, trial).us;
  EXPECT_GT(us, 9 * even);  // each block crosses the slow card, one after the other
  EXPECT_LT(us, 11 * even);
}

// K messages fly, then the writer waits for the first one's release to come back.
TEST(Simulator, CreditLimitsAPipelineOverALongWay) {
  Topology t = bare(2);
  t.nic = {80'000, 1000};
  t.slice_bytes = 1024;
  for (const int32_t slots : {2, 4}) {
    t.slots = slots;
    const SimulatedTime time = simulated(t, {"binomial_tree", Collective::kBroadcast, 8 * 1024});
    EXPECT_EQ(time.rounds, 8u);
    const double us = 1000. * (2 * (8 / slots - 1) + 1);
    EXPECT_NEAR(time.us, us, us * 0.01) << slots;
  }
}

// A bucket lets one short call pass at once; of many calls the rate is left.
TEST(Simulator, ATokenBucketLimitsManyCallsButNotOne) {
  Topology t = bare(2);
  t.nic = {8, 0.1, 64 << 10};
  const std::vector<int32_t> host_of = t.host_of_ranks();
  const auto program =
      compile_program("recursive_doubling",
                      {.collective = Collective::kAllReduce, .ranks = 2, .hosts = host_of}, t, {});
  ASSERT_TRUE(program.ok());
  const SimulatedCall call{.elements = 1000};
  EXPECT_NEAR(simulate_call(*program, t, call, {}).us, 0.1, 0.01);
  EXPECT_NEAR(simulate_call(*program, t, call, {.calls = 100}).us, 4, 0.04);
  t.nic.burst_bytes = 0;
  EXPECT_NEAR(simulate_call(*program, t, call, {}).us, 4.1, 0.04);
}

// A rank begins a call when its last one is over: no slice of the second passes one of the first.
TEST(Simulator, CallsFollowEachOther) {
  Topology t = bare(4);
  for (const char* algorithm : {"ring", "binomial_tree"}) {
    const std::vector<int32_t> host_of = t.host_of_ranks();
    const auto program = compile_program(algorithm, {.ranks = 4, .hosts = host_of}, t, {});
    ASSERT_TRUE(program.ok());
    const SimulatedCall call{.elements = 40'000};
    const double one = simulate_call(*program, t, call, {}).us;
    const double many = simulate_call(*program, t, call, {.calls = 10}).us;
    EXPECT_LE(many, one * 1.0001) << algorithm;
    EXPECT_GE(many, one / 2) << algorithm;  // the tree's leaves are done before its root's children
  }
}

TEST(Simulator, APeriodOfRanksStandsForAll) {
  struct Case {
    const char* algorithm;
    Collective collective;
  };
  for (const Case& one :
       {Case{"ring", Collective::kAllReduce}, Case{"ring", Collective::kAllGather},
        Case{"direct", Collective::kAllReduce}, Case{"pairwise", Collective::kAllToAll}}) {
    for (const auto& [hosts, here] : {std::pair{5, 1}, {4, 3}, {3, 4}}) {
      Topology t = bare(hosts, here);
      t.overhead_us = 1;
      t.slice_bytes = 64 << 10;
      const uint64_t bytes = static_cast<uint64_t>(hosts * here) * (100 << 10);
      const std::vector<int32_t> host_of = t.host_of_ranks();
      const auto program = compile_program(
          one.algorithm, {.collective = one.collective, .ranks = t.ranks(), .hosts = host_of}, t,
          {});
      ASSERT_TRUE(program.ok());
      EXPECT_TRUE(program->symmetric()) << one.algorithm;
      EXPECT_EQ(program->simulated, here);
      const double all = simulated(t, {one.algorithm, one.collective, bytes, true}).us;
      const double few = simulated(t, {one.algorithm, one.collective, bytes, false}).us;
      EXPECT_NEAR(few, all, all * 1e-9) << one.algorithm << " " << hosts << "x" << here;
    }
  }
}

TEST(Simulator, WhatDependsOnTheRankIsNotTakenForAPeriod) {
  const Topology t = bare(8);
  const PlanRequest request{.ranks = 8};
  for (const char* algorithm : {"binomial_tree", "recursive_doubling", "double_binary_tree"}) {
    const auto program = compile_program(algorithm, request, t, {});
    ASSERT_TRUE(program.ok());
    EXPECT_FALSE(program->symmetric()) << algorithm;
  }
  Topology uneven = t;
  uneven.slow_hosts = {{3, 1}};
  EXPECT_FALSE(compile_program("ring", request, uneven, {})->symmetric());
}

TEST(Simulator, ALongPipelineGoesOnAtItsPace) {
  Topology t = bare(8);
  t.slice_bytes = 64 << 10;
  t.overhead_us = 1;
  for (const char* algorithm : {"chain", "binary_tree", "double_binary_tree"}) {
    const Trial all{algorithm, Collective::kBroadcast, 32 << 20, false, 1 << 20};
    Trial some = all;
    some.most_rounds = 64;
    const SimulatedTime whole = simulated(t, all), paced = simulated(t, some);
    EXPECT_EQ(whole.simulated, whole.rounds);
    EXPECT_EQ(paced.simulated, 64u);
    EXPECT_NEAR(paced.us, whole.us, whole.us * 0.01) << algorithm;
    some.most_rounds = 16;  // the fewest that the tool takes by itself
    EXPECT_NEAR(simulated(t, some).us, whole.us, whole.us * 0.03) << algorithm;
  }
}

TEST(Simulator, TenThousandRanks) {
  const Topology t = bare(10'000);
  const double ring = simulated(t, {"ring", Collective::kAllReduce, 10'000 * 64}).us;
  const double formula = 2 * 9999 * (10 + 0.064);
  EXPECT_NEAR(ring, formula, formula * 0.01);
  const double tree = simulated(t, {"binomial_tree", Collective::kBroadcast, 64}).us;
  EXPECT_NEAR(tree, 13 * 10.064, 13 * 10.064 * 0.01);
  const double twin = simulated(t, {"double_binary_tree", Collective::kAllReduce, 64}).us;
  EXPECT_GT(twin, 2 * 12 * 10.);
  EXPECT_LT(twin, 2 * 15 * 11.);
}

TEST(Simulator, TooManyStepsAreRefusedBeforeTheyAreBuilt) {
  const Topology t = bare(1000);
  const auto program =
      compile_program("ring", {.ranks = 1000}, t, {.whole = true, .most_steps = 1'000'000});
  ASSERT_FALSE(program.ok());
  EXPECT_NE(program.status().message().find("2000 steps on 1000 ranks"), std::string::npos)
      << program.status().message();
}

// A file that goes with the object.
class TopologyFile {
 public:
  explicit TopologyFile(const std::string& text)
      : path_(::testing::TempDir() + "topology-" + std::to_string(getpid())) {
    std::ofstream(path_) << text;
  }
  ~TopologyFile() { std::remove(path_.c_str()); }
  TopologyFile(const TopologyFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(TopologyFiles, EveryFieldIsReadAndWrittenBack) {
  const char* const kText =
      R"({"hosts":3,"ranks_per_host":2,)"
      R"("nic":{"gbit_per_s":25.0,"latency_us":7.0,"burst_bytes":4096.0},)"
      R"("memory":{"gbit_per_s":100.0,"latency_us":0.25},"slow_hosts":[[1,1.5]],)"
      R"("hosts_per_rack":2,"uplink":{"gbit_per_s":40.0,"latency_us":2.0},"overhead_us":0.75,)"
      R"("reduce_gigabytes_per_s":6.0,"message_gigabytes_per_s":3.0,"copy_gigabytes_per_s":9.0,)"
      R"("cores":2,"switch_us":30.0,"slice_bytes":65536,"slots":3})";
  const TopologyFile file(kText);
  Topology t;
  const Status status = read_topology(file.path(), &t);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(t.check().ok());
  EXPECT_EQ(topology_json(t), kText);
  const TopologyFile uneven(R"({"ranks_on_host": [3, 1, 2]})");
  Topology u;
  ASSERT_TRUE(read_topology(uneven.path(), &u).ok());
  EXPECT_EQ(u.host_of_ranks(), (std::vector<int32_t>{0, 0, 0, 1, 2, 2}));
}

TEST(TopologyFiles, WhatIsWrongIsNamed) {
  struct Case {
    const char *text, *words;
  };
  for (const Case& one : {
           Case{"[]", "does not hold a JSON object"},
           Case{"{\"hosts\": ", "does not hold a JSON object"},
           Case{R"({"hots": 3})", "hots: there is no such field"},
           Case{R"({"hosts": 1.5})", "hosts: an integer"},
           Case{R"({"hosts": 40000})", "hosts, ranks_per_host: 40000 ranks"},
           Case{R"({"hosts": 0})", "0 ranks"},
           Case{R"({"hosts": 2000000000, "ranks_per_host": 2000000000})", "ranks; 1 to 32768"},
           Case{R"({"ranks_on_host": [2, 0]})", "ranks_on_host: 0 ranks"},
           Case{R"({"nic": 100})", "nic: {"},
           Case{R"({"nic": {"rate": 1}})", "nic.rate: there is no such field"},
           Case{R"({"nic": {"gbit_per_s": 0}})", "nic.gbit_per_s: 0 is no rate"},
           Case{R"({"memory": {"latency_us": -1}})", "memory.latency_us: -1 is no time"},
           Case{R"({"nic": {"burst_bytes": -1}})", "nic.burst_bytes: -1 is no size"},
           Case{R"({"slow_hosts": [[5, 1]]})", "slow_hosts: there is no host 5"},
           Case{R"({"slow_hosts": [5]})", "slow_hosts: a list of [host, gbit_per_s]"},
           Case{R"({"overhead_us": "1"})", "overhead_us: a number"},
           Case{R"({"cores": -1})", "cores: an integer from 0"},
           Case{R"({"switch_us": -1})", "switch_us: a time"},
           Case{R"({"slots": 1})", "slots: 2 to 64"},
           Case{R"({"slice_bytes": 8})", "slice_bytes: at least 64"},
       }) {
    const TopologyFile file(one.text);
    Topology t;
    Status status = read_topology(file.path(), &t);
    if (status.ok()) status = t.check();
    ASSERT_FALSE(status.ok()) << one.text;
    EXPECT_NE(status.message().find(one.words), std::string::npos) << status.message();
  }
}

TEST(Schedules, APlanThatWaitsForEverIsNotDrawn) {
  std::vector<Plan> plans;
  for (const int32_t rank : {0, 1, 2}) {
    auto plan = build_plan("ring", {.ranks = 3, .rank = rank});
    ASSERT_TRUE(plan.ok());
    plans.push_back(*plan);
  }
  const auto good = schedule_plans(plans);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->length, 6);
  EXPECT_EQ(good->arrows.size(), 12u);
  plans[1].lanes[0].steps[0].forward = -1;
  const auto bad = schedule_plans(plans);
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.status().message().find("waits for ever"), std::string::npos);
}

}  // namespace
}  // namespace unisono::uni_plan
