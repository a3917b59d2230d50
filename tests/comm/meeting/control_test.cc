// The control tree over sockets: errors, deaths, mismatches, arrivals, mail.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "comm/control/messages.h"
#include "comm/control/tree.h"
#include "tests/comm/meeting/control_testing.h"

namespace unisono {
namespace {

using Ranks = std::vector<int32_t>;

TEST(TreeTest, EveryRankIsReachedFromEveryOtherByNextHops) {
  for (int32_t from = 0; from < 100; ++from) {
    for (int32_t to = 0; to < 100; ++to) {
      int32_t at = from;
      for (int hops = 0; at != to; ++hops) {
        ASSERT_LT(hops, 8) << from << " to " << to;
        const int32_t next = control::next_hop(at, to);
        const bool is_child = control::parent_of(next) == at;
        ASSERT_TRUE(is_child || next == control::parent_of(at)) << from << " to " << to;
        at = next;
      }
    }
  }
}

TEST(TreeTest, ChildrenNameTheirParent) {
  for (int32_t rank = 0; rank < 50; ++rank) {
    for (const int32_t child : control::children_of(rank, 75)) {
      EXPECT_EQ(control::parent_of(child), rank);
      EXPECT_LT(child, 75);
    }
  }
}

TEST(ControlTest, AnErrorRaisedAnywhereReachesAllOf20Ranks) {
  for (const int32_t raiser : {0, 2, 19}) {
    ControlTree tree(20);
    tree[raiser].control->raise(error(Code::kAborted, "enough"));
    for (int32_t rank = 0; rank < tree.size(); ++rank) {
      ASSERT_TRUE(tree[rank].wait_failed()) << rank;
      const Status status = tree[rank].control->error();
      EXPECT_EQ(status.code(), Code::kAborted);
      const std::string prefix = fmt::format("rank {} (h{}): ", raiser, raiser);
      EXPECT_EQ(status.message(), (rank == raiser ? "" : prefix) + "enough");
      ASSERT_TRUE(tree[rank].wait_until([&] { return tree[rank].failures == 1; }));
    }
  }
}

TEST(ControlTest, AnErrorThatNamesWhoRaisedItIsNotPrefixedByTheNameAgain) {
  ControlTree tree(20);
  const std::string text = "rank 0 (h0) called this, rank 12 (h12) called that";
  tree[12].control->raise(error(Code::kMismatch, "{}", text));
  for (int32_t rank = 0; rank < tree.size(); ++rank) {
    ASSERT_TRUE(tree[rank].wait_failed()) << rank;
    EXPECT_EQ(tree[rank].control->error().message(), text);
  }
}

TEST(ControlTest, TheFirstErrorWinsOnEachRank) {
  ControlTree tree(2);
  tree[1].control->raise(error(Code::kTimeout, "first"));
  tree[1].control->raise(error(Code::kAborted, "second"));
  EXPECT_EQ(tree[1].control->error().message(), "first");
  ASSERT_TRUE(tree[0].wait_failed());
  EXPECT_EQ(tree[0].control->error().code(), Code::kTimeout);
  EXPECT_EQ(tree[1].failures, 1);
}

TEST(ControlTest, AFarewellIsNoError) {
  ControlTree tree(10);
  tree[9].control->close();
  tree[8].control->close();
  // Later traffic between the others shows that the farewells were digested.
  tree[0].control->post(7, "k", "v");
  EXPECT_TRUE(tree[7].control->await(0, "k", in_seconds(60)).ok());
  for (int32_t rank = 0; rank < 8; ++rank) EXPECT_FALSE(tree[rank].control->failed()) << rank;
}

TEST(ControlTest, AMismatchFailsAllRanksNamingBothSides) {
  ControlTree tree(12);
  for (int32_t rank = 0; rank < 12; ++rank) {
    tree[rank].record(rank == 10 ? call(7, 222, 64) : call(7, 111, 100));
  }
  // Rank 10 has returned from its call and says nothing; rank 3 waits.
  tree[3].control->publish_stall({call(7, 111, 100), 1, 0, 2, false});
  for (int32_t rank = 0; rank < 12; ++rank) {
    ASSERT_TRUE(tree[rank].wait_failed()) << rank;
    const Status status = tree[rank].control->error();
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_TRUE(contains(status.message(),
                         "rank 3 (h3) called all_reduce #7 (float32, sum, count 100, ring), "
                         "rank 10 (h10) called all_reduce #7 (float32, sum, count 64, ring)"))
        << status.message();
  }
}

TEST(ControlTest, ASuspicionThatNobodyExplainsFailsByItself) {
  ControlTree tree(3);
  tree[2].record(call(5, 1, 8));
  tree[2].control->publish_stall({call(5, 1, 8), 0, 0, 1, true});
  for (int32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(tree[rank].wait_failed()) << rank;
    EXPECT_EQ(tree[rank].control->error().code(), Code::kMismatch);
    EXPECT_TRUE(
        contains(tree[rank].control->error().message(), "rank 2 (h2) called all_reduce #5"));
    EXPECT_TRUE(contains(tree[rank].control->error().message(), "from rank 1 (h1)"));
  }
}

// Calls 6 and 7 are the same on all ranks, but rank 2's history is not: call 5 was another one.
TEST(ControlTest, ADifferenceMetLateIsTracedToTheCallThatMadeIt) {
  ControlTree tree(4);
  for (int32_t rank = 0; rank < 4; ++rank) {
    const uint64_t odd = rank == 2 ? 1000 : 0;
    for (const uint64_t sequence : {5, 6, 7}) {
      CallRecord one = call(sequence, sequence + odd, sequence == 5 && odd != 0 ? 64 : 100);
      one.before = sequence == 5 ? 4 : sequence - 1 + odd;
      tree[rank].record(one);
    }
  }
  CallRecord met = call(7, 7, 100);
  met.before = 6;
  tree[1].control->publish_stall({met, 0, 0, 2, true});
  for (int32_t rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(tree[rank].wait_failed()) << rank;
    const Status status = tree[rank].control->error();
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_TRUE(contains(status.message(),
                         "rank 2 (h2) called all_reduce #5 (float32, sum, "
                         "count 64, ring)"))
        << status.message();
    EXPECT_TRUE(contains(status.message(), "called all_reduce #5 (float32, sum, count 100, ring)"))
        << status.message();
  }
}

// Rank 1 still is in its own call 5 when the others ask about 6, which it has not issued.
TEST(ControlTest, ARankThatIsBehindIsComparedAtItsLatestCall) {
  ControlTree tree(3);
  for (const int32_t rank : {0, 2}) {
    tree[rank].record(call(5, 50, 100));
    tree[rank].record(call(6, 60, 100));
  }
  tree[1].record(call(5, 51, 64));
  tree[2].control->publish_stall({call(6, 60, 100), 0, 0, 1, true});
  for (int32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(tree[rank].wait_failed()) << rank;
    const Status status = tree[rank].control->error();
    EXPECT_TRUE(contains(status.message(), "rank 1 (h1) called all_reduce #5")) << status.message();
  }
}

TEST(ControlTest, EveryRankLearnsWhoLeftAndAfterWhat) {
  ControlTree tree(12);
  tree[10].record(call(3, 1, 8));
  tree[10].control->close();
  for (int32_t rank = 0; rank < 12; ++rank) {
    if (rank == 10) continue;
    const Control& control = *tree[rank].control;
    EXPECT_TRUE(tree[rank].wait_until([&] { return control.has_left(10); })) << rank;
    EXPECT_EQ(control.left_before(3), -1);
    EXPECT_EQ(control.left_before(4), 10);
    EXPECT_FALSE(control.has_left(9));
    EXPECT_FALSE(control.failed());
  }
  const auto mail = tree[1].control->await(10, "key", in_seconds(60));
  EXPECT_EQ(mail.status().code(), Code::kRemoteError);
}

// Ranks 9 to 16 are below 1, 17 and 18 below 2, 1 to 8 below 0.
TEST(ControlTest, WhenInnerRanksHaveLeftNewsStillReachAllOthers) {
  for (const std::vector<int32_t>& leavers : {Ranks{0}, Ranks{1}, Ranks{0, 1, 2}, Ranks{2, 0, 1}}) {
    ControlTree tree(19);
    for (const int32_t rank : leavers) tree[rank].control->close();
    // Once it has a way to the others again, a rank whose neighbours have all left is heard.
    tree[18].control->post(10, "key", "value");
    EXPECT_TRUE(tree[10].control->await(18, "key", in_seconds(60)).ok());
    tree[10].control->close();
    const auto there = [&](int32_t rank) {
      return rank != 10 && std::find(leavers.begin(), leavers.end(), rank) == leavers.end();
    };
    for (int32_t rank = 0; rank < 19; ++rank) {
      if (!there(rank)) continue;
      const Control& control = *tree[rank].control;
      EXPECT_TRUE(tree[rank].wait_until([&] { return control.has_left(10); })) << rank;
      EXPECT_FALSE(control.failed()) << control.error().message();
    }
    // Mail finds its way, errors do, and the top of the tree that is left compares stalled calls.
    tree[18].control->post(9, "key", "value");
    EXPECT_TRUE(tree[9].control->await(18, "key", in_seconds(60)).ok());
    tree[17].record(call(7, 222, 64));
    tree[9].record(call(7, 111, 100));
    tree[9].control->publish_stall({call(7, 111, 100), 1, 0, 2, false});
    for (int32_t rank = 0; rank < 19; ++rank) {
      if (!there(rank)) continue;
      ASSERT_TRUE(tree[rank].wait_failed()) << rank;
      EXPECT_EQ(tree[rank].control->error().code(), Code::kMismatch);
    }
  }
}

TEST(ControlTest, WhenAllLeaveOneByOneNobodyFails) {
  ControlTree tree(19);
  for (int32_t rank = 0; rank < 19; ++rank) {
    EXPECT_FALSE(tree[rank].control->failed()) << tree[rank].control->error().message();
    tree[rank].control->close();
  }
}

TEST(ControlTest, EveryRankLearnsWhoHasArrived) {
  ControlTree tree(20);
  for (const int32_t rank : {0, 4, 11, 19}) {
    tree[rank].record(call(3, 1, 8));
    tree[rank].control->publish_stall({call(3, 1, 8), 0, 0, -1, false});
  }
  const std::vector<int32_t> expected = {0, 4, 11, 19};
  for (int32_t rank = 0; rank < 20; ++rank) {
    std::vector<int32_t> others = expected;
    std::erase(others, rank);
    EXPECT_TRUE(tree[rank].wait_until([&] { return tree[rank].control->arrived(3) == others; }));
    EXPECT_FALSE(tree[rank].control->failed());
    EXPECT_TRUE(tree[rank].control->arrived(4).empty());
  }
}

TEST(ControlTest, MailReachesAnyRankFromAny) {
  ControlTree tree(20);
  for (int32_t from = 0; from < 20; from += 3) {
    for (int32_t to = 0; to < 20; ++to) {
      tree[from].control->post(to, "key", fmt::format("{} to {}", from, to));
    }
  }
  for (int32_t to = 0; to < 20; ++to) {
    for (int32_t from = 0; from < 20; from += 3) {
      const auto mail = tree[to].control->await(from, "key", in_seconds(60));
      ASSERT_TRUE(mail.ok()) << mail.status().message();
      EXPECT_EQ(*mail, fmt::format("{} to {}", from, to));
    }
  }
}

TEST(ControlTest, LargeMailArrivesWhole) {
  ControlTree tree(10);
  const std::string large(control::kMaxMail, 'x');
  tree[9].control->post(8, "large", large);  // through their parents 1 and 0
  const auto mail = tree[8].control->await(9, "large", in_seconds(60));
  ASSERT_TRUE(mail.ok()) << mail.status().message();
  EXPECT_TRUE(*mail == large);
}

TEST(ControlTest, AwaitEndsWithTheDeadlineNamingTheRank) {
  ControlTree tree(2);
  const auto mail = tree[0].control->await(1, "never", real_env().now_ns() + 20'000'000);
  EXPECT_EQ(mail.status().code(), Code::kTimeout);
  EXPECT_TRUE(contains(mail.status().message(), "rank 1 (h1)")) << mail.status().message();
}

TEST(ControlTest, AwaitEndsWithTheCommunicatorsFailure) {
  ControlTree tree(3);
  std::thread raiser([&] { tree[2].control->raise(error(Code::kAborted, "stop")); });
  const auto mail = tree[0].control->await(1, "never", in_seconds(60));
  raiser.join();
  EXPECT_EQ(mail.status().code(), Code::kAborted);
}

TEST(ControlTest, AMissingRankIsNamedWhenTheTreeCannotBeBuilt) {
  auto loop = net::shared_event_loop();
  ASSERT_TRUE(loop.ok());
  net::EndpointOptions options;
  options.tcp = false;
  auto endpoint = net::Endpoint::create(**loop, options);
  ASSERT_TRUE(endpoint.ok());
  ControlOptions control_options;
  control_options.ranks = 2;
  control_options.env = &real_env();
  const auto control = Control::create(make_socket_links(**endpoint, 0), control_options,
                                       real_env().now_ns() + 50'000'000);
  ASSERT_FALSE(control.ok());
  EXPECT_EQ(control.status().code(), Code::kTimeout);
  EXPECT_TRUE(contains(control.status().message(), "rank 1")) << control.status().message();
}

// ---- Messages ----

CallRecord random_call(std::mt19937_64& random) {
  CallRecord record = call(random(), random(), random());
  record.collective = static_cast<Collective>(random() % kCollectives);
  record.root = static_cast<int32_t>(random() % 100);
  return record;
}

std::vector<std::string> samples(std::mt19937_64& random) {
  control::CompareMessage compare{
      9, {{1, random_call(random)}, {2, random_call(random)}}, {1, 2, 3}};
  for (auto& side : compare.sides) side.call.sequence = 9;
  StallReport pairs;
  pairs.last = random();
  pairs.waits = {{true, 3, random(), DataType::kInt32, random()}, {false, -1, 0, {}, 1}};
  pairs.tallies = {{2, random(), random(), 1}};
  pairs.all_tallies = false;
  return {control::encode(control::ErrorMessage{3, Code::kTimeout, "text"}),
          control::encode(control::StallMessage{4, {random_call(random), 1, 2, 3, true}}),
          control::encode(compare),
          control::encode(control::MailMessage{1, 2, "key", "payload"}),
          control::encode(control::LeftMessage{4, 77}),
          control::encode(control::StallMessage{4, pairs})};
}

TEST(ControlMessageTest, WhatIsEncodedIsParsed) {
  std::mt19937_64 random(1);
  const auto bytes = samples(random);
  auto error_message = control::parse(bytes[0], 5);
  ASSERT_TRUE(error_message && error_message->error);
  EXPECT_EQ(error_message->error->text, "text");
  EXPECT_EQ(error_message->error->code, Code::kTimeout);
  auto stall = control::parse(bytes[1], 5);
  ASSERT_TRUE(stall && stall->stall);
  EXPECT_EQ(stall->stall->report.peer, 3);
  EXPECT_EQ(std::string(stall->stall->report.call.algorithm), "ring");
  auto compare = control::parse(bytes[2], 5);
  ASSERT_TRUE(compare && compare->compare);
  EXPECT_EQ(compare->compare->arrived, (std::vector<int32_t>{1, 2, 3}));
  ASSERT_EQ(compare->compare->sides.size(), 2u);
  auto mail = control::parse(bytes[3], 5);
  ASSERT_TRUE(mail && mail->mail);
  EXPECT_EQ(mail->mail->payload, "payload");
  auto left = control::parse(bytes[4], 5);
  ASSERT_TRUE(left && left->left);
  EXPECT_EQ(left->left->last, 77u);
  auto pairs = control::parse(bytes[5], 5);
  ASSERT_TRUE(pairs && pairs->stall);
  ASSERT_EQ(pairs->stall->report.waits.size(), 2u);
  EXPECT_TRUE(pairs->stall->report.waits[0].receive);
  EXPECT_EQ(pairs->stall->report.waits[0].type, DataType::kInt32);
  EXPECT_EQ(pairs->stall->report.waits[1].peer, -1);
  ASSERT_EQ(pairs->stall->report.tallies.size(), 1u);
  EXPECT_EQ(pairs->stall->report.tallies[0].open, 1u);
  EXPECT_FALSE(pairs->stall->report.all_tallies);
  EXPECT_EQ(control::encode(*pairs->stall), bytes[5]);
}

TEST(ControlMessageTest, RanksOutsideTheCommunicatorAreRefused) {
  std::mt19937_64 random(1);
  const auto bytes = samples(random);
  EXPECT_FALSE(control::parse(bytes[0], 3));
  EXPECT_FALSE(control::parse(bytes[1], 4));
  EXPECT_FALSE(control::parse(bytes[2], 3));
  EXPECT_FALSE(control::parse(bytes[3], 2));
  EXPECT_FALSE(control::parse(bytes[4], 4));
  EXPECT_FALSE(control::parse(bytes[5], 3));
}

TEST(ControlMessageTest, CutOrChangedMessagesNeverReadPastTheirEnd) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int round = 0; round < 200; ++round) {
    for (const std::string& bytes : samples(random)) {
      for (size_t length = 0; length < bytes.size(); ++length) {
        // A fresh allocation of exactly this size lets the address sanitizer see every step too
        // far.
        const std::string cut(bytes.data(), length);
        EXPECT_FALSE(control::parse(cut, 5).has_value());
      }
      std::string changed = bytes;
      changed[random() % changed.size()] = static_cast<char>(random());
      refused += !control::parse(changed, 5).has_value();
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace unisono
