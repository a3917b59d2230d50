// Ranks that call different things: every rank gets uniMismatch, in that call or in the next, and
// its message names both sides.
#include <algorithm>
#include <memory>
#include <mutex>

#include "comm/handles.h"
#include "tests/comm/collective_case.h"
#include "transports/sim/sim_world.h"

namespace unisono::testing {
namespace {

struct Difference {
  Case good, odd;
};

std::vector<Difference> differences() {
  const Case sum{Kind::kAllReduce, uniFloat32, uniSum, 100, 0, false};
  auto with = [](Case c, auto member, auto value) {
    c.*member = value;
    return c;
  };
  std::vector<Difference> list = {
      {sum, with(sum, &Case::kind, Kind::kAllGather)},
      {sum, with(sum, &Case::kind, Kind::kBarrier)},
      {sum, with(sum, &Case::kind, Kind::kBroadcast)},
      {with(sum, &Case::kind, Kind::kScatter), with(sum, &Case::kind, Kind::kGather)},
      {sum, with(sum, &Case::type, uniInt32)},
      {sum, with(sum, &Case::type, uniFloat64)},
      {sum, with(sum, &Case::op, uniMax)},
      {sum, with(sum, &Case::count, size_t{101})},
      {sum, with(sum, &Case::count, size_t{300'000})},
      {with(sum, &Case::count, size_t{300'000}), with(sum, &Case::count, size_t{300'001})},
      {sum, with(sum, &Case::count, size_t{0})},
      {with(sum, &Case::count, size_t{0}), sum},
  };
  for (const Kind kind : {Kind::kBroadcast, Kind::kReduce, Kind::kGather, Kind::kScatter}) {
    const Case rooted = with(sum, &Case::kind, kind);
    list.push_back({rooted, with(rooted, &Case::root, 1)});
    list.push_back({rooted, with(rooted, &Case::count, size_t{0})});
  }
  for (const Kind kind : {Kind::kReduceScatter, Kind::kAllGather, Kind::kAllToAll}) {
    const Case one = with(sum, &Case::kind, kind);
    list.push_back({one, with(one, &Case::count, size_t{99})});
    list.push_back({one, with(one, &Case::count, size_t{0})});
  }
  return list;
}

// What the message must say of a side: the operation and what tells it from the other.
std::string called(const Case& c, uint64_t sequence) {
  return std::string("called ") + kind_name(c.kind) + " #" + std::to_string(sequence);
}
std::string differing(const Case& c, const Case& other) {
  static const char* const types[] = {"int8",    "uint8",    "int32",   "uint32",
                                      "int64",   "uint64",   "float16", "float32",
                                      "float64", "bfloat16", "bool"};
  static const char* const ops[] = {"sum", "prod", "max", "min", "avg", "band", "bor", "bxor"};
  if (c.kind != other.kind) return kind_name(c.kind);
  if (c.type != other.type) return types[c.type];
  if (c.op != other.op) return ops[c.op];
  if (c.count != other.count) return "count " + std::to_string(c.count);
  return "root " + std::to_string(c.root);
}

struct Seen {
  uniResult_t now = uniSuccess, next = uniSuccess;
  std::string text;
};

// Two calls that agree, the one that does not, and a barrier, on every rank.
std::vector<Seen> differ(const Ranks& world, const Difference& d, int odd) {
  std::vector<Seen> seen(static_cast<size_t>(world.count()));
  world.run([&](int rank, uniComm_t comm) {
    Seen& mine = seen[static_cast<size_t>(rank)];
    for (int i = 0; i < 2; i++) {
      CaseRun before({Kind::kAllReduce, uniInt32, uniSum, 5, 0, false}, rank, world.count());
      // A rank may still be in the call before when the others' disagreement reaches it.
      mine.now = before.call(comm, nullptr);
      if (mine.now != uniSuccess) break;
    }
    if (mine.now == uniSuccess) {
      CaseRun run(rank == odd ? d.odd : d.good, rank, world.count());
      mine.now = run.call(comm, nullptr);
    }
    if (mine.now != uniSuccess) mine.text = uniGetLastError(nullptr);
    mine.next = uniBarrier(comm, nullptr);
    if (mine.text.empty()) mine.text = uniGetLastError(nullptr);
  });
  return seen;
}

class Mismatch : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  std::string transport() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
};

void check(const std::vector<Seen>& seen, const Difference& d, int odd) {
  for (size_t rank = 0; rank < seen.size(); rank++) {
    const Seen& one = seen[rank];
    SCOPED_TRACE("rank " + std::to_string(rank) + ", odd one " + std::to_string(odd) + ": " +
                 d.good.text() + " against " + d.odd.text());
    EXPECT_TRUE(one.now == uniSuccess || one.now == uniMismatch) << one.now << ": " << one.text;
    EXPECT_EQ(one.next, uniMismatch) << one.text;
    for (const std::string& part : {called(d.good, 3), called(d.odd, 3), differing(d.good, d.odd),
                                    differing(d.odd, d.good), "rank " + std::to_string(odd)}) {
      EXPECT_NE(one.text.find(part), std::string::npos) << "no '" << part << "' in: " << one.text;
    }
  }
}

TEST_P(Mismatch, IsAnErrorOnEveryRankThatNamesBothSides) {
  // All at once: most of the time is spent waiting for somebody to be missed.
  const std::vector<Difference> list = differences();
  for (const int odd : {0, ranks() - 1}) {
    std::vector<std::vector<Seen>> seen(list.size());
    constexpr size_t kAtOnce = 13;
    for (size_t first = 0; first < list.size(); first += kAtOnce) {
      std::vector<std::thread> threads;
      for (size_t i = first; i < std::min(first + kAtOnce, list.size()); i++) {
        threads.emplace_back([&, i] {
          const Ranks world(ranks(), {transport()});
          if (world.ok()) seen[i] = differ(world, list[i], odd);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
    for (size_t i = 0; i < list.size(); i++) {
      ASSERT_EQ(seen[i].size(), static_cast<size_t>(ranks()));
      check(seen[i], list[i], odd);
    }
  }
}

TEST_P(Mismatch, ThatNoMessageOfItsOwnCallShowsIsMetByTheNextCollective) {
  // Two roots that only send: both calls succeed where there are two ranks.
  const Ranks world(ranks(), {transport()});
  ASSERT_TRUE(world.ok());
  const Case good{Kind::kBroadcast, uniFloat32, uniSum, 10, 0, false};
  Case odd = good;
  odd.root = ranks() - 1;
  check(differ(world, {good, odd}, ranks() - 1), {good, odd}, ranks() - 1);
}

TEST_P(Mismatch, OfSendAndRecvNamesWhatWasSentAndWhatWasExpected) {
  struct Wrong {
    size_t sent, received;
    uniDataType_t sent_type, received_type;
  };
  for (const Wrong& wrong :
       {Wrong{10, 11, uniFloat32, uniFloat32}, Wrong{10, 10, uniFloat32, uniInt32},
        Wrong{0, 10, uniFloat32, uniFloat32}, Wrong{10, 0, uniFloat32, uniFloat32},
        Wrong{200'000, 100'000, uniFloat32, uniFloat64}}) {
    const Ranks world(ranks(), {transport()});
    ASSERT_TRUE(world.ok());
    world.run([&](int rank, uniComm_t comm) {
      std::vector<char> data(8u << 20, 'd');
      if (rank == 0) {
        uniResult_t result = uniSend(data.data(), wrong.sent, wrong.sent_type, 1, comm, nullptr);
        if (result == uniSuccess) result = uniBarrier(comm, nullptr);
        EXPECT_EQ(result, uniMismatch) << uniGetLastError(nullptr);
      } else if (rank == 1) {
        EXPECT_EQ(uniRecv(data.data(), wrong.received, wrong.received_type, 0, comm, nullptr),
                  uniMismatch);
        EXPECT_EQ(data, std::vector<char>(8u << 20, 'd'));
      } else {
        EXPECT_EQ(uniBarrier(comm, nullptr), uniMismatch);
      }
      const std::string text = uniGetLastError(nullptr);
      for (const std::string& part :
           {std::string("rank 0"), std::string("rank 1"), " of " + std::to_string(wrong.sent),
            " of " + std::to_string(wrong.received)}) {
        EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
      }
    });
  }
}

// One rank sends or receives where the others call a collective: no message shows it, but the calls
// wait for each other.
enum class Pair { kSend, kRecv, kRecvAny };
struct Crossed {
  Pair pair;
  Case collective;
  int odd;  // the rank that sends or receives, with the next
};

uniResult_t call_pair(Pair pair, int peer, uniComm_t comm) {
  std::vector<char> data(8u << 20);  // more than a send gets rid of
  int from = -1;
  switch (pair) {
    case Pair::kSend:
      return uniSend(data.data(), data.size(), uniInt8, peer, comm, nullptr);
    case Pair::kRecv:
      return uniRecv(data.data(), 77, uniInt8, peer, comm, nullptr);
    case Pair::kRecvAny:
      return uniRecvAny(data.data(), 77, uniInt8, &from, comm, nullptr);
  }
  return uniInternalError;
}

void run_crossed(const std::string& transport, int ranks, const Crossed& crossed) {
  const Ranks world(ranks, {transport});
  if (!world.ok()) return;
  const int peer = (crossed.odd + 1) % ranks;
  Case collective = crossed.collective;
  collective.root = peer;
  world.run([&](int rank, uniComm_t comm) {
    UNI_OK(uniBarrier(comm, nullptr));
    uniResult_t result = uniSuccess;
    if (rank == crossed.odd) {
      result = call_pair(crossed.pair, peer, comm);
    } else {
      CaseRun run(collective, rank, ranks);
      result = run.call(comm, nullptr);
      // A root that only sends may be done with it.
      if (result == uniSuccess) result = uniBarrier(comm, nullptr);
    }
    const std::string text = uniGetLastError(nullptr);
    EXPECT_EQ(result, uniMismatch) << rank << ": " << text;
    const std::string odd = "rank " + std::to_string(crossed.odd);
    const std::string with =
        crossed.pair == Pair::kRecvAny ? "any rank" : "rank " + std::to_string(peer);
    const std::string how = crossed.pair == Pair::kSend ? " called send to " : " called recv from ";
    for (const std::string& part : {odd, how + with, std::string("int8, count "), std::string(" #"),
                                    std::string("waiting for rank ")}) {
      EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
    }
    EXPECT_TRUE(text.find(kind_name(collective.kind)) != std::string::npos ||
                text.find("barrier") != std::string::npos)
        << text;
    EXPECT_EQ(uniBarrier(comm, nullptr), uniMismatch);
  });
}

TEST_P(Mismatch, OfSendOrRecvAgainstACollectiveIsAnErrorOnEveryRankThatNamesBothCalls) {
  std::vector<Crossed> list;
  for (const Pair pair : {Pair::kSend, Pair::kRecv, Pair::kRecvAny}) {
    for (const Kind kind : {Kind::kAllReduce, Kind::kBarrier, Kind::kBroadcast, Kind::kAllToAll}) {
      for (const size_t count : {size_t{100}, size_t{300'000}}) {
        const int odd = list.size() % 2 == 0 ? 0 : ranks() - 1;
        list.push_back({pair, {kind, uniFloat32, uniSum, count, 0, false}, odd});
      }
    }
  }
  constexpr size_t kAtOnce = 12;
  for (size_t first = 0; first < list.size(); first += kAtOnce) {
    std::vector<std::thread> threads;
    for (size_t i = first; i < std::min(first + kAtOnce, list.size()); i++) {
      threads.emplace_back([&, i] { run_crossed(transport(), ranks(), list[i]); });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_P(Mismatch, OfTwoReceivesThatWaitForEachOtherIsAnErrorOnEveryRank) {
  const Ranks world(ranks(), {transport()});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    char byte = 0;
    EXPECT_EQ(
        rank < 2 ? uniRecv(&byte, 1, uniInt8, 1 - rank, comm, nullptr) : uniBarrier(comm, nullptr),
        uniMismatch);
    const std::string text = uniGetLastError(nullptr);
    EXPECT_NE(text.find("called recv from rank 0"), std::string::npos) << text;
    EXPECT_NE(text.find("called recv from rank 1"), std::string::npos) << text;
  });
}

TEST_P(Mismatch, LeavesAnotherCommunicatorOfTheSameProcessWorking) {
  const Ranks failing(ranks(), {transport()}), healthy(ranks(), {transport()});
  ASSERT_TRUE(failing.ok() && healthy.ok());
  const Case sum{Kind::kAllReduce, uniFloat32, uniSum, 1000, 0, false};
  run_cases(healthy, {sum});
  failing.run([&](int rank, uniComm_t comm) {
    Case other = sum;
    other.count += static_cast<size_t>(rank);
    CaseRun wrong(other, rank, ranks());
    uniResult_t result = wrong.call(comm, nullptr);
    if (result == uniSuccess) result = uniBarrier(comm, nullptr);
    EXPECT_EQ(result, uniMismatch);
    uniResult_t error = uniSuccess;
    UNI_OK(uniCommGetAsyncError(comm, &error));
    EXPECT_EQ(error, uniMismatch);
    EXPECT_NE(std::string(uniGetLastError(comm)).find("called"), std::string::npos);
  });
  run_cases(healthy, {sum, sum});
  for (int rank = 0; rank < ranks(); rank++) {
    uniResult_t error = uniMismatch;
    UNI_OK(uniCommGetAsyncError(healthy[rank], &error));
    EXPECT_EQ(error, uniSuccess);
  }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<std::string, int>>& info) {
  return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, Mismatch,
                         ::testing::Combine(::testing::Values("shm", "tcp", "sim"),
                                            ::testing::Values(2, 3, 5)),
                         name_of);

// In virtual time, so that everybody has long told that he waits.
TEST(LongWaits, OfSendRecvAndCollectivesForOneSlowRankAreNoMismatch) {
  constexpr int kRanks = 5;
  const Ranks world(kRanks, {"sim"});
  ASSERT_TRUE(world.ok());
  SimWorld* sim = SimWorld::from(*world[0]->communicator->world());
  ASSERT_NE(sim, nullptr);
  world.run([&](int rank, uniComm_t comm) {
    std::vector<char> data(3'000'000, static_cast<char>(rank));
    const auto send = [&](int to) {
      UNI_OK(uniSend(data.data(), data.size(), uniInt8, to, comm, nullptr));
    };
    const auto recv = [&](int from) {
      UNI_OK(uniRecv(data.data(), data.size(), uniInt8, from, comm, nullptr));
    };
    const auto slow = [&] { sim->sleep_ns(20'000'000'000); };
    UNI_OK(uniBarrier(comm, nullptr));
    for (int round = 0; round < 2; round++) {
      // 0 waits for 1, which waits for 2, which is slow; 3 waits in a collective, 4 in a send to 0.
      if (rank == 0) recv(1), recv(4);
      if (rank == 1) recv(2), send(0);
      if (rank == 2) slow(), send(1);
      if (rank == 4) send(0);
      CaseRun run({Kind::kAllReduce, uniFloat32, uniSum, 1000, 0, false}, rank, kRanks);
      UNI_OK(run.call(comm, nullptr));
      EXPECT_EQ(run.wrong(), "");
      // All but 3 wait in a collective for it, which waits for a message of 2 after it.
      if (rank == 3) slow();
      UNI_OK(uniBarrier(comm, nullptr));
      if (rank == 2) slow(), send(3);
      if (rank == 3) recv(2);
    }
  });
}

// Another plan can only come from another configuration: that is refused at the start.
TEST(MismatchOfConfig, IsRefusedAtInitOnEveryRankNamingTheSetting) {
  struct Setting {
    const char *algorithm_of_one, *named;
    int reproducible_of_one;
  };
  for (const Setting& setting : {Setting{"ring", "algorithm", 0}, Setting{"", "reproducible", 1}}) {
    for (const std::string transport : {"shm", "tcp"}) {
      constexpr int kRanks = 3;
      uniUniqueId id;
      ASSERT_EQ(uniGetUniqueId(&id), uniSuccess);
      std::vector<std::thread> threads;
      for (int rank = 0; rank < kRanks; rank++) {
        threads.emplace_back([&, rank] {
          uniConfig_t config = UNI_CONFIG_INITIALIZER;
          config.transports = transport.c_str();
          config.timeout_ms = 60'000;
          if (rank == 1) config.algorithm = setting.algorithm_of_one;
          if (rank == 1) config.reproducible = setting.reproducible_of_one;
          uniComm_t comm = nullptr;
          EXPECT_EQ(uniCommInitRankConfig(&comm, kRanks, id, rank, &config), uniInvalidArgument);
          EXPECT_EQ(comm, nullptr);
          const std::string text = uniGetLastError(nullptr);
          EXPECT_NE(text.find(setting.named), std::string::npos) << text;
          EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  }
}

}  // namespace
}  // namespace unisono::testing
