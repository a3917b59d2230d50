// Rule 17: small wrongs are planted in right plans. What the verifier accepts must compute right on
// random data under random interleavings; that is the test of the verifier. What it rejects is
// counted, and a part of it run as well, to show that the runs do find wrongs.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>

#include "algorithms/registry.h"
#include "algorithms/verify/mutate.h"
#include "algorithms/verify/random_run.h"
#include "algorithms/verify/verify.h"
#include "tests/sample.h"

namespace unisono {
namespace {

using Plans = std::vector<Plan>;

struct Count {
  int accepted = 0, rejected = 0, rejected_and_run = 0, seen_wrong = 0;
};

PlanRequest any_request(std::mt19937_64* random) {
  PlanRequest request;
  request.collective = static_cast<Collective>((*random)() % kCollectives);
  request.ranks = 1 + static_cast<int32_t>((*random)() % 9);
  request.root = static_cast<int32_t>((*random)() % static_cast<uint64_t>(request.ranks));
  request.multicast = (*random)() % 2 == 0;
  return request;
}

// The first wrong of a few runs in all forms; ok: none seen.
Status run_all(const Plans& plans, int slots, bool late, int runs, std::mt19937_64* random) {
  for (int i = 0; i < runs; ++i) {
    RandomRunOptions run;
    run.seed = (*random)();
    run.slots = slots + (i % 5 == 4 ? 2 : 0);  // more slots never harm what is proved
    run.count = 1 + run.seed % 12;
    run.slice_elements = 1 + run.seed / 16 % 2;
    run.late = late && i % 2 == 1;
    run.single_thread = !run.late && i % 4 == 2;
    run.in_place = static_cast<InPlace>(i % 3);
    const Status status = random_run(plans, run);
    if (!status.ok()) return status.annotate(fmt::format("run of seed {}", run.seed));
  }
  return {};
}

// Rejections of a plan's form leave nothing that could be run.
bool runnable(const Status& rejection) {
  return rejection.message().rfind("rule 14", 0) == 0 ||
         rejection.message().rfind("rule 15", 0) == 0;
}

TEST(VerifyMutationTest, EveryAcceptedMutantComputesRight) {
  const char* given = std::getenv("UNISONO_TEST_SEED");
  const uint64_t base = given != nullptr ? std::strtoull(given, nullptr, 10) : 17;
  const int mutants = testing::sampled(30000, 2500, 500);
  printf("seeds from %llu (UNISONO_TEST_SEED)\n", static_cast<unsigned long long>(base));
  std::array<Count, kMutations> counts = {};
  Count one_slot;
  int done = 0;
  for (uint64_t m = 0; done < mutants; ++m) {
    std::mt19937_64 random(base + m);
    PlanRequest request = any_request(&random);
    std::vector<int32_t> hosts;
    for (int32_t rank = 0; rank < request.ranks; ++rank)
      hosts.push_back(static_cast<int32_t>(random() % 3));
    request.hosts = hosts;
    const Algorithm& algorithm = algorithms()[random() % algorithms().size()];
    if (!algorithm.supports(request)) continue;
    Plans plans;
    for (request.rank = 0; request.rank < request.ranks; ++request.rank) {
      plans.push_back(algorithm.build(request));
    }
    const auto mutation = static_cast<Mutation>(random() % kMutations);
    VerifyOptions options;
    options.multicast = request.multicast;
    options.slots = random() % 8 == 0 ? 1 : 2;
    // K = 1 is a mutant of its own: half of these plans stay right.
    const bool planted =
        options.slots == 1 && random() % 2 == 0 ? false : mutate(mutation, &random, &plans);
    if (!planted && options.slots > 1) continue;
    ++done;
    Count& count = planted ? counts[static_cast<size_t>(mutation)] : one_slot;
    const Status verdict = verify_plans(plans, options);
    if (verdict.ok()) {
      ++count.accepted;
      const Status seen = run_all(plans, options.slots, plans[0].late, 12, &random);
      EXPECT_TRUE(seen.ok()) << "MISSED: seed " << base + m << ": " << mutation_name(mutation)
                             << " in " << algorithm.name << " "
                             << collective_name(request.collective) << " of " << request.ranks
                             << " ranks, root " << request.root << ", multicast "
                             << request.multicast << ", " << options.slots
                             << " slots: " << seen.message();
      continue;
    }
    EXPECT_EQ(verdict.code(), Code::kInternalError) << verdict.message();
    ++count.rejected;
    if (!runnable(verdict)) continue;
    ++count.rejected_and_run;
    if (!run_all(plans, options.slots, plans[0].late, 12, &random).ok()) ++count.seen_wrong;
  }
  Count all = one_slot;
  const auto print = [](const char* name, const Count& c) {
    printf("%-16s accepted %5d  rejected %5d, of these run %5d, seen wrong %5d\n", name, c.accepted,
           c.rejected, c.rejected_and_run, c.seen_wrong);
  };
  print("K = 1", one_slot);
  for (int i = 0; i < kMutations; ++i) {
    const Count& c = counts[static_cast<size_t>(i)];
    print(mutation_name(static_cast<Mutation>(i)), c);
    all.accepted += c.accepted;
    all.rejected += c.rejected;
    all.rejected_and_run += c.rejected_and_run;
    all.seen_wrong += c.seen_wrong;
  }
  print("all", all);
  EXPECT_GT(all.accepted, mutants / 50);
  EXPECT_GT(all.rejected, mutants / 5);
  // The runs are not blind: much of what is rejected for its values or its timing goes wrong in a
  // dozen of them.
  EXPECT_GT(all.seen_wrong * 2, all.rejected_and_run);
}

}  // namespace
}  // namespace unisono
