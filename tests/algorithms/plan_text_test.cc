// Plans as text: what is written is read back the same, and what is not a plan is refused with its
// line and field.
#include "algorithms/plan_text.h"

#include <gtest/gtest.h>

#include "algorithms/registry.h"
#include "algorithms/verify/verify.h"

namespace unisono {
namespace {

std::vector<Plan> plans_of(const Algorithm& row, PlanRequest request) {
  std::vector<Plan> plans;
  for (request.rank = 0; request.rank < request.ranks; ++request.rank)
    plans.push_back(row.build(request));
  return plans;
}

// The steps without what means nothing: a length is of no buffer, and an absent destination is
// nowhere.
std::vector<Step> meanings(const Lane& lane) {
  std::vector<Step> steps = lane.steps;
  for (Step& step : steps) {
    step.length.buffer = Buffer::kInput;
    step.length.lane = 0;
    if (!step.has_destination) step.destination = {};
  }
  return steps;
}

void expect_same(const std::vector<Plan>& a, const std::vector<Plan>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t r = 0; r < a.size(); ++r) {
    const Plan &x = a[r], &y = b[r];
    EXPECT_EQ(x.algorithm, y.algorithm);
    EXPECT_EQ(x.collective, y.collective);
    EXPECT_EQ(x.ranks, y.ranks);
    EXPECT_EQ(x.rank, y.rank);
    EXPECT_EQ(x.root, y.root);
    EXPECT_EQ(x.rule, y.rule);
    EXPECT_EQ(x.blocks, y.blocks);
    EXPECT_EQ(x.input_blocks, y.input_blocks);
    EXPECT_EQ(x.output_blocks, y.output_blocks);
    EXPECT_EQ(x.message_blocks, y.message_blocks);
    EXPECT_EQ(x.late, y.late);
    EXPECT_EQ(x.reproducible, y.reproducible);
    EXPECT_EQ(x.channels, y.channels);
    EXPECT_EQ(x.order, y.order);
    EXPECT_EQ(x.scratch_blocks, y.scratch_blocks);
    ASSERT_EQ(x.lanes.size(), y.lanes.size());
    for (size_t l = 0; l < x.lanes.size(); ++l) {
      EXPECT_EQ(x.lanes[l].name, y.lanes[l].name);
      EXPECT_TRUE(meanings(x.lanes[l]) == meanings(y.lanes[l])) << x.algorithm << " lane " << l;
      EXPECT_EQ(x.lanes[l].repeats, y.lanes[l].repeats);
    }
  }
}

TEST(PlanText, EveryAlgorithmsPlansComeBackTheSame) {
  int plans_seen = 0;
  for (const Algorithm& row : algorithms()) {
    for (int c = 0; c < kCollectives; ++c) {
      for (const int32_t ranks : {1, 2, 3, 5, 8}) {
        for (const bool multicast : {true, false}) {
          const PlanRequest request{.collective = static_cast<Collective>(c),
                                    .ranks = ranks,
                                    .root = ranks - 1,
                                    .multicast = multicast};
          if (!row.supports(request)) continue;
          const std::vector<Plan> plans = plans_of(row, request);
          const auto read = parse_plan_text(to_plan_text(plans));
          ASSERT_TRUE(read.ok()) << row.name << ": " << read.status().message();
          expect_same(plans, *read);
          EXPECT_EQ(plan_hash(plans), plan_hash(*read));
          ++plans_seen;
        }
      }
    }
  }
  EXPECT_GT(plans_seen, 200);
}

// docs/plan-format.md's example.
const char* const kBroadcast = R"(unisono-plan 1            # the version
algorithm mine
collective broadcast
ranks 2
root 0
blocks split 1
message_blocks 1
late no
reproducible no
lane pass

rank 0
buffers 1 1
scratch 0
channel 0 0 1
step 0 input:0+1 into output:0+1 send 0 length 0+1
rank 1
buffers 0 1
scratch 0
channel 0 0 1
step 0 recv:0 into output:0+1 length 0+1
end
)";

TEST(PlanText, APlanByHandIsReadAndProved) {
  const auto plans = parse_plan_text(kBroadcast);
  ASSERT_TRUE(plans.ok()) << plans.status().message();
  const Status proved = verify_plans(*plans);
  EXPECT_TRUE(proved.ok()) << proved.message();
}

TEST(PlanText, TheHashIsOfTheMeaning) {
  const auto plans = parse_plan_text(kBroadcast);
  ASSERT_TRUE(plans.ok());
  const auto again = parse_plan_text("# written\r\n" + to_plan_text(*plans) + "\n  # by hand\n");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(plan_hash(*plans), plan_hash(*again));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(PlanText, APlanWithOneWordChangedHasAnotherHash) {
  const auto plans = parse_plan_text(kBroadcast);
  const auto other = parse_plan_text(replaced(kBroadcast, "late no", "late yes"));
  ASSERT_TRUE(plans.ok());
  ASSERT_TRUE(other.ok());
  EXPECT_NE(plan_hash(*plans), plan_hash(*other));
}

TEST(PlanText, WhatIsWrongIsSaidWithItsLineAndField) {
  struct Case {
    const char *from, *to, *error;
  };
  for (const Case& one : {
           Case{"unisono-plan 1", "unisono-plan 2", "line 1: unisono-plan: version 2"},
           Case{"unisono-plan 1", "plan", "line 1: 'plan': 'unisono-plan' was expected"},
           Case{"algorithm mine", "algorithm My$", "line 2: algorithm: 'My$' is not a name"},
           Case{"algorithm mine\n", "", "line 2: 'collective': 'algorithm' was expected"},
           Case{"broadcast", "song", "line 3: collective: no collective is called 'song'"},
           Case{"ranks 2", "ranks 0", "line 4: ranks: '0' is not in 1..32768"},
           Case{"ranks 2", "ranks 99999999999999999999", "line 4: ranks: '9999"},
           Case{"ranks 2", "ranks 3", "line 22: end: 2 ranks are described, 'ranks' says 3"},
           Case{"ranks 2", "ranks 1", "line 15: channel reader: '1' is not in 0..0"},
           Case{"root 0", "root 2", "line 5: root: '2' is not in 0..1"},
           Case{"split 1", "cut 1", "line 6: blocks: 'cut' is neither 'whole' nor 'split'"},
           Case{"split 1", "split 65537", "line 6: blocks: '65537' is not in"},
           Case{"late no", "late perhaps", "line 8: late: 'perhaps' is neither"},
           Case{"late no", "late no 1", "line 8: '1': nothing more was expected"},
           Case{"rank 0", "rank 1", "line 12: rank: 1, but 0 is next"},
           Case{"buffers 1 1", "buffers 1 2", "line 13: buffers: '2' is not in 0..1"},
           Case{"scratch 0", "scratch", "line 14: scratch: a number is missing"},
           Case{"channel 0 0 1", "channel 200 0 1", "line 15: channel number: '200'"},
           Case{"channel 0 0 1", "channel 0 0 2", "line 15: channel reader: '2' is not in 0..1"},
           Case{"step 0", "step 1", "line 16: step: '1' is not in 0..0"},
           Case{"input:0+1 into", "input:0 into", "line 16: source: '0' is not FIRST+BLOCKS"},
           Case{"input:0+1 into", "inlet:0+1 into", "line 16: source: there is no buffer 'inlet'"},
           Case{"input:0+1 into", "scratch.1:0+1 into", "line 16: source: '1' is not in 0..0"},
           Case{"send 0", "send 1", "line 16: send: '1' is not in 0..0"},
           Case{"length 0+1\nrank", "length 3x\nrank", "line 16: length: '3x' is not FIRST+BLOCKS"},
           Case{"length 0+1\nrank", "\nrank", "line 16: length: it is missing before ''"},
           Case{"length 0+1\nrank", "length 0+1 after 0.1-1\nrank", "line 16: after: '1' is not"},
           Case{"length 0+1\nrank", "length 0+1 before\nrank", "line 16: 'before': 'after' or"},
           Case{"recv:0", "recv:7", "line 21: recv: '7' is not in 0..0"},
           Case{"\nend", "\nrepeat 0 0 1 9\nend", "line 22: repeat times: '9' is not in 1..1"},
           Case{"\nend", "\nEnd", "line 22: 'End': 'rank' or 'end' was expected"},
           Case{"\nend\n", "\n", "end of the text: 'rank' or 'end' is missing"},
           Case{"\nend\n", "\nend\nmore\n", "line 23: 'more': nothing may follow 'end'"},
           Case{"mine", "\x1b[31m", "'?[31m' is not a name"},
       }) {
    const auto plans = parse_plan_text(replaced(kBroadcast, one.from, one.to));
    ASSERT_FALSE(plans.ok()) << one.from << " -> " << one.to;
    EXPECT_EQ(plans.status().code(), Code::kInvalidArgument);
    EXPECT_NE(plans.status().message().find(one.error), std::string::npos)
        << "no '" << one.error << "' in '" << plans.status().message() << "'";
  }
}

TEST(PlanText, WhatWouldTakeTooMuchMemoryIsRefused) {
  const auto blocks = parse_plan_text(
      replaced(replaced(kBroadcast, "ranks 2", "ranks 32768"), "split 1", "split 65536"));
  ASSERT_FALSE(blocks.ok());
  EXPECT_NE(blocks.status().message().find("line 6: blocks: 32768 ranks of 65536 blocks"),
            std::string::npos)
      << blocks.status().message();
  const auto bytes = parse_plan_text(std::string(kMaxPlanTextBytes + 1, ' '));
  ASSERT_FALSE(bytes.ok());
  EXPECT_NE(bytes.status().message().find("67108865 bytes"), std::string::npos);
}

// Well-formed, and wrong: the proof is what stands between a file and the ranks.
TEST(PlanText, AWellFormedPlanThatIsWrongIsNotProved) {
  struct Case {
    const char *from, *to, *rule;
  };
  for (const Case& one : {
           Case{" send 0 length", " length", "rule 1"},  // rank 1 waits for ever
           Case{"step 0 recv:0 into output:0+1 length 0+1\nend", "end", "rule 1"},
           Case{"input:0+1 into", "output:0+1 into", "rule 15"},
           Case{"buffers 0 1", "buffers 1 1", "rule 6"},
       }) {
    const auto plans = parse_plan_text(replaced(kBroadcast, one.from, one.to));
    ASSERT_TRUE(plans.ok()) << plans.status().message();
    const Status proved = verify_plans(*plans);
    ASSERT_FALSE(proved.ok()) << one.from << " -> " << one.to;
    EXPECT_NE(proved.message().find(one.rule), std::string::npos) << proved.message();
  }
}

}  // namespace
}  // namespace unisono
