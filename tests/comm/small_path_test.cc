// The small path and the lane executor run the same plans: with operands whose order shows (a float
// sum that rounds at every addition), both give the same bits for every collective, algorithm and
// rank count, and issue the same messages.
#include <cmath>

#include "algorithms/registry.h"
#include "comm/handles.h"
#include "tests/comm/collective_case.h"

namespace unisono::testing {
namespace {

std::vector<float> uneven(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; i++) {
    values[i] = std::ldexp(
        1.0f + static_cast<float>((i * 7 + static_cast<size_t>(rank) * 13) % 101) / 103.0f,
        static_cast<int>((i + static_cast<size_t>(rank) * 5) % 30) - 15);
  }
  return values;
}

using Outputs = std::vector<std::vector<float>>;  // by rank

Outputs run_all(const Ranks& world, Kind kind, size_t count, int root, bool small) {
  const auto n = static_cast<size_t>(world.count());
  Outputs outputs(n);
  world.run([&](int rank, uniComm_t comm) {
    comm->communicator->use_small_path(small);
    const std::vector<float> in = uneven(rank, count * n);
    std::vector<float>& out = outputs[static_cast<size_t>(rank)];
    out.assign(count * n, -1);
    switch (kind) {
      case Kind::kAllReduce:
        UNI_OK(uniAllReduce(in.data(), out.data(), count, uniFloat32, uniSum, comm, nullptr));
        break;
      case Kind::kReduce:
        UNI_OK(uniReduce(in.data(), out.data(), count, uniFloat32, uniAvg, root, comm, nullptr));
        break;
      case Kind::kBroadcast:
        UNI_OK(uniBroadcast(in.data(), out.data(), count, uniFloat32, root, comm, nullptr));
        break;
      case Kind::kAllGather:
        UNI_OK(uniAllGather(in.data(), out.data(), count, uniFloat32, comm, nullptr));
        break;
      case Kind::kReduceScatter:
        UNI_OK(uniReduceScatter(in.data(), out.data(), count, uniFloat32, uniProd, comm, nullptr));
        break;
      case Kind::kGather:
        UNI_OK(uniGather(in.data(), out.data(), count, uniFloat32, root, comm, nullptr));
        break;
      case Kind::kScatter:
        UNI_OK(uniScatter(in.data(), out.data(), count, uniFloat32, root, comm, nullptr));
        break;
      case Kind::kAllToAll:
        UNI_OK(uniAllToAll(in.data(), out.data(), count, uniFloat32, comm, nullptr));
        break;
      case Kind::kBarrier:
        UNI_OK(uniBarrier(comm, nullptr));
        break;
    }
  });
  return outputs;
}

class SmallPath : public ::testing::TestWithParam<std::string> {};

TEST_P(SmallPath, GivesTheLaneExecutorsBitsForEveryPlan) {
  for (const Algorithm& algorithm : algorithms()) {
    for (const int ranks : {1, 2, 3, 5, 8}) {
      const Ranks world(ranks, {GetParam(), algorithm.name});
      ASSERT_TRUE(world.ok());
      for (int k = 0; k < kKinds; k++) {
        for (const size_t count : {size_t{0}, size_t{1}, size_t{9}, size_t{701}}) {
          const auto kind = static_cast<Kind>(k);
          const Outputs small = run_all(world, kind, count, ranks - 1, true);
          const Outputs lanes = run_all(world, kind, count, ranks - 1, false);
          EXPECT_EQ(small, lanes) << algorithm.name << " " << kind_name(kind) << " " << ranks
                                  << " ranks, count " << count;
        }
      }
    }
  }
}

std::string name(const ::testing::TestParamInfo<std::string>& tested) {
  return tested.param;
}
INSTANTIATE_TEST_SUITE_P(Over, SmallPath, ::testing::Values("shm", "tcp"), name);

// Step by step: what the program says of a step is what the plan says of it.
TEST(SmallProgram, FollowsThePlansEmissionOrderStepByStep) {
  for (const Algorithm& algorithm : algorithms()) {
    for (int k = 0; k < kCollectives; k++) {
      for (int ranks = 2; ranks <= 9; ranks++) {
        PlanRequest request{static_cast<Collective>(k), ranks, ranks / 2, 0, true};
        if (!algorithm.supports(request)) continue;
        BoundPlan bound;
        bound.plan = algorithm.build(request);
        bound.channels.resize(bound.plan.channels.size());
        for (BoundChannel& channel : bound.channels) channel.prefers_reserve = true;
        for (const auto& [lane, index] : bound.plan.order) {
          bound.order.push_back(
              {&bound.plan.lanes[static_cast<size_t>(lane)].steps[static_cast<size_t>(index)], lane,
               index});
        }
        Call call;
        call.collective = request.collective;
        call.type = DataType::kFloat32;
        call.count = 100;
        const Geometry geometry = make_geometry(bound.plan, call.count, 4, 1 << 16);
        ASSERT_EQ(geometry.rounds, 1u);
        const SmallProgram program = make_small_program(bound, call, geometry);
        if (!program.simple) continue;
        ASSERT_EQ(program.steps.size(), bound.order.size());
        for (size_t i = 0; i < program.steps.size(); i++) {
          const Step& step = *bound.order[i].step;
          const SmallStep& small = program.steps[i];
          EXPECT_EQ(small.operands, step.sources.size());
          EXPECT_EQ(small.has_destination, step.has_destination);
          EXPECT_EQ(small.elements, geometry.slice(step.length.first, 0));
          if (!step.has_destination) continue;
          EXPECT_EQ(small.destination, geometry.begin(step.destination.first, false) * 4);
        }
      }
    }
  }
}

}  // namespace
}  // namespace unisono::testing
