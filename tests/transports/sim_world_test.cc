// The simulated world: one thread at a time, virtual time, exact replays.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "transports/sim/sim_transport.h"
#include "transports/sim/sim_world.h"

namespace unisono {
namespace {

constexpr int64_t kMicrosecond = 1000;

std::shared_ptr<SimWorld> make_world(const std::string& options, int32_t ranks) {
  std::printf("# sim:%s, %d ranks\n", options.c_str(), ranks);
  auto world = SimWorld::create(options, ranks);
  EXPECT_TRUE(world.ok()) << world.status().message();
  return *world;
}

// One thread a rank, each inside the world from its first turn on. Joined for real, as a user's
// test would.
void run_ranks(SimWorld& world, const std::function<void(int32_t rank)>& body) {
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < world.ranks(); ++r) {
    threads.emplace_back([&world, &body, r] {
      world.env().enter(r);
      world.take_turn();
      body(r);
      world.env().leave(r);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A rank's transport, connected to the others of a world by hand.
struct Rank {
  std::unique_ptr<Waiter> waiter;
  std::unique_ptr<Transport> transport;

  void sleep(Env& env, int64_t deadline_ns) {
    Waiter* const waiters[] = {waiter.get()};
    env.wait(waiters, deadline_ns);
  }
};
std::vector<Rank> connect_all(const std::shared_ptr<SimWorld>& world) {
  std::vector<Rank> ranks(static_cast<size_t>(world->ranks()));
  std::vector<std::string> addresses;
  for (int32_t r = 0; r < world->ranks(); ++r) {
    Rank& rank = ranks[static_cast<size_t>(r)];
    rank.waiter = world->env().make_waiter();
    TransportContext context;
    context.env = &world->env();
    context.waiter = rank.waiter.get();
    context.rank = r;
    context.ranks = world->ranks();
    context.world = world;
    auto transport = make_sim_transport(context);
    EXPECT_TRUE(transport.ok()) << transport.status().message();
    rank.transport = std::move(*transport);
    addresses.push_back(rank.transport->address());
  }
  for (Rank& rank : ranks) EXPECT_TRUE(rank.transport->connect(addresses).ok());
  return ranks;
}

TEST(SimWorld, OneThreadRunsAtATime) {
  auto world = make_world("seed=3", 8);
  int inside = 0;  // not atomic: the world's turns order all accesses
  int most = 0;
  int turns = 0;
  run_ranks(*world, [&](int32_t rank) {
    for (int i = 0; i < 50; ++i) {
      most = std::max(most, ++inside);
      std::this_thread::yield();
      ++turns;
      --inside;
      world->sleep_ns(i % 3 == 0 ? 0 : 1 + rank % 2);
    }
  });
  EXPECT_EQ(most, 1);
  EXPECT_EQ(turns, 8 * 50);
}

struct Trace {
  std::vector<int32_t> order;
  uint64_t hash = 0;
  int64_t end_ns = 0;
  std::vector<uint64_t> random;
};
Trace traced_run(const std::string& options) {
  auto world = make_world(options, 6);
  auto ranks = connect_all(world);
  Trace trace;
  run_ranks(*world, [&](int32_t r) {
    Rank& rank = ranks[static_cast<size_t>(r)];
    const int32_t next = (r + 1) % 6, previous = (r + 5) % 6;
    const ChannelShape shape{1024, 2};
    SendEnd* send = *rank.transport->open_send({0, r, next}, shape);
    RecvEnd* receive = *rank.transport->open_recv({0, previous, r}, shape);
    uint64_t value = 0;
    world->env().random_bytes(&value, sizeof value);
    for (int i = 0; i < 20; ++i) {
      while (send->send({7, sizeof value}, &value) == SendOutcome::kAgain) {
        rank.sleep(world->env(), kNeverNs);
      }
      trace.order.push_back(r);
      Message message;
      while (!receive->lend(&message)) rank.sleep(world->env(), kNeverNs);
      trace.order.push_back(100 + r);
      receive->release();
    }
    trace.random.push_back(value);
  });
  trace.hash = world->trace_hash();
  trace.end_ns = world->env().now_ns();
  for (Rank& rank : ranks) rank.transport->close();
  return trace;
}

TEST(SimWorld, TheSameSeedReplaysExactlyAndAnotherDoesNot) {
  const Trace first = traced_run("seed=7");
  EXPECT_EQ(first.order.size(), 6u * 40u);
  for (int i = 0; i < 5; ++i) {
    const Trace again = traced_run("seed=7");
    EXPECT_EQ(again.order, first.order);
    EXPECT_EQ(again.hash, first.hash);
    EXPECT_EQ(again.end_ns, first.end_ns);
    EXPECT_EQ(again.random, first.random);
  }
  const Trace other = traced_run("seed=8");
  EXPECT_NE(other.order, first.order);
  EXPECT_NE(other.hash, first.hash);
  EXPECT_NE(other.random, first.random);
}

TEST(SimWorld, TheLatencyIsWhatTheOptionsSay) {
  auto world = make_world("latency_us=5,overhead_us=1,gbps=1,jitter=0", 2);
  auto ranks = connect_all(world);
  run_ranks(*world, [&](int32_t r) {
    Rank& rank = ranks[static_cast<size_t>(r)];
    const ChannelShape shape{4000, 2};
    const int64_t start = world->env().now_ns();
    if (r == 0) {
      SendEnd* send = *rank.transport->open_send({1, 0, 1}, shape);
      const std::vector<char> bytes(4000, 'x');
      EXPECT_EQ(send->send({1, 4000}, bytes.data()), SendOutcome::kDone);
      EXPECT_EQ(send->send({2, 4000}, bytes.data()), SendOutcome::kDone);
      EXPECT_EQ(send->send({3, 4000}, bytes.data()), SendOutcome::kAgain);  // two slots
      while (send->reserve() == nullptr) rank.sleep(world->env(), kNeverNs);
      // The first message's way there, and its credit's way back.
      EXPECT_EQ(world->env().now_ns() - start, (1 + 4 + 5 + 5) * kMicrosecond);
    } else {
      RecvEnd* receive = *rank.transport->open_recv({1, 0, 1}, shape);
      Message message;
      for (int i = 0; i < 2; ++i) {
        while (!receive->lend(&message)) rank.sleep(world->env(), kNeverNs);
        EXPECT_EQ(message.header.fingerprint, uint64_t(i + 1));
        EXPECT_EQ(message.data[3999], std::byte('x'));
        // The second waits for the wire: 4 us more.
        EXPECT_EQ(world->env().now_ns() - start, (1 + 4 + 5 + 4 * i) * kMicrosecond);
        receive->release();
      }
    }
  });
}

TEST(SimWorld, ADeadlineIsReachedInVirtualTimeOnly) {
  auto world = make_world("", 2);
  run_ranks(*world, [&](int32_t rank) {
    auto waiter = world->env().make_waiter();
    Waiter* const waiters[] = {waiter.get()};
    const int64_t hour = int64_t{3600} * 1000000000;
    const int64_t deadline = world->env().now_ns() + (rank + 1) * hour;
    while (world->env().now_ns() < deadline) world->env().wait(waiters, deadline);
    EXPECT_EQ(world->env().now_ns(), deadline);
  });
}

TEST(SimWorld, ADeadlockWakesEverybodyAndIsReported) {
  auto world = make_world("", 3);
  auto ranks = connect_all(world);
  std::vector<Status> seen(3);
  EXPECT_FALSE(world->deadlocked());
  run_ranks(*world, [&](int32_t r) {
    Rank& rank = ranks[static_cast<size_t>(r)];
    RecvEnd* receive = *rank.transport->open_recv({0, (r + 1) % 3, r}, {64, 2});
    Message message;
    while (!receive->lend(&message) && rank.transport->status().ok()) {
      rank.sleep(world->env(), kNeverNs);
    }
    seen[static_cast<size_t>(r)] = rank.transport->status();
  });
  EXPECT_TRUE(world->deadlocked());
  for (const Status& status : seen) {
    EXPECT_EQ(status.code(), Code::kInternalError);
    EXPECT_NE(status.message().find("simulated deadlock"), std::string::npos);
  }
}

TEST(SimWorld, ADeathIsSeenByPeersAndByTheDeadRankItself) {
  auto world = make_world("seed=5", 3);
  auto ranks = connect_all(world);
  std::vector<Status> seen(3);
  std::vector<int> ended(3, 0);
  std::vector<std::unique_ptr<MessageLinks>> links;
  for (int32_t r = 0; r < 3; ++r) links.push_back(world->make_links(r));
  run_ranks(*world, [&](int32_t r) {
    Rank& rank = ranks[static_cast<size_t>(r)];
    std::vector<int32_t> others;
    for (int32_t other = 0; other < 3; ++other) {
      if (other != r) others.push_back(other);
    }
    MessageLinks::Handlers handlers;
    handlers.message = [](int32_t, const std::string&) {};
    handlers.closed = [&ended, r](int32_t peer, bool orderly) {
      EXPECT_EQ(peer, 1);
      EXPECT_FALSE(orderly);
      ++ended[static_cast<size_t>(r)];
    };
    EXPECT_TRUE(links[static_cast<size_t>(r)]->open(others, handlers, kNeverNs).ok());
    if (r == 0) {
      world->sleep_ns(50 * kMicrosecond);
      world->kill(1);
    }
    while (rank.transport->status().ok()) rank.sleep(world->env(), kNeverNs);
    seen[static_cast<size_t>(r)] = rank.transport->status();
    world->sleep_ns(kMicrosecond);
  });
  for (const Status& status : seen) {
    EXPECT_EQ(status.code(), Code::kRemoteError);
    EXPECT_EQ(status.message(), "rank 1 died");
  }
  EXPECT_EQ(ended, (std::vector<int>{1, 0, 1}));
  for (auto& link : links) link->close();
}

TEST(SimWorld, AThreadThatEndsDoesNotStallTheOthers) {
  auto world = make_world("seed=2", 4);
  for (int phase = 0; phase < 3; ++phase) {  // new threads for the same ranks each time
    std::vector<int64_t> ends(4);
    run_ranks(*world, [&](int32_t rank) {
      for (int i = 0; i < rank * 5; ++i) world->sleep_ns(10);
      ends[static_cast<size_t>(rank)] = world->env().now_ns();
    });
    for (int32_t rank = 1; rank < 4; ++rank) {
      EXPECT_EQ(ends[static_cast<size_t>(rank)] - ends[0], rank * 50);
    }
  }
}

TEST(SimWorld, HelpersTakePartAndAreJoinedWithoutStallingTheWorld) {
  uint64_t hashes[2];
  for (uint64_t& hash : hashes) {
    auto world = make_world("seed=11", 3);
    std::vector<int> done(3, 0);
    run_ranks(*world, [&](int32_t rank) {
      auto to_helper = world->env().make_waiter();
      auto from_helper = world->env().make_waiter();
      bool asked = false, answered = false;
      auto helper = world->env().start_thread("helper", [&] {
        Waiter* const waiters[] = {to_helper.get()};
        while (!asked) world->env().wait(waiters, kNeverNs);
        world->sleep_ns(100 + rank);
        answered = true;
        from_helper->notify();
        world->sleep_ns(1000);
        done[static_cast<size_t>(rank)] = 1;
      });
      world->sleep_ns(10);
      asked = true;
      to_helper->notify();
      Waiter* const waiters[] = {from_helper.get()};
      while (!answered) world->env().wait(waiters, kNeverNs);
      helper.reset();
      EXPECT_EQ(done[static_cast<size_t>(rank)], 1);
    });
    EXPECT_FALSE(world->deadlocked());
    hash = world->trace_hash();
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(SimWorld, AnIdleHelperIsJoinedByAThreadThatIsNotOfTheWorld) {
  auto world = make_world("", 2);
  auto waiter = world->env().make_waiter();
  std::atomic<bool> stop{false};
  auto helper = world->env().start_thread("idle", [&] {
    Waiter* const waiters[] = {waiter.get()};
    while (!stop.load()) world->env().wait(waiters, kNeverNs);
  });
  stop.store(true);
  waiter->notify();
  helper.reset();
  EXPECT_FALSE(world->deadlocked());
}

TEST(SimWorld, OneThreadMayDriveAllRanksAndThenLeaveThemToOthers) {
  auto world = make_world("", 3);
  auto ranks = connect_all(world);
  Env& env = world->env();
  for (int32_t r = 0; r < 3; ++r) env.enter(r);
  SendEnd* send = *ranks[0].transport->open_send({0, 0, kEveryone}, {64, 2});
  RecvEnd* receive[2];
  for (int32_t r = 1; r < 3; ++r) {
    receive[r - 1] =
        *ranks[static_cast<size_t>(r)].transport->open_recv({0, 0, kEveryone}, {64, 2});
  }
  EXPECT_EQ(send->send({1, 3}, "abc"), SendOutcome::kDone);
  Waiter* const waiters[] = {ranks[1].waiter.get(), ranks[2].waiter.get()};
  Message message;
  for (RecvEnd* end : receive) {
    while (!end->lend(&message)) env.wait(waiters, kNeverNs);
    EXPECT_EQ(std::memcmp(message.data, "abc", 3), 0);
    end->release();
  }
  for (int32_t r = 0; r < 3; ++r) env.leave(r);
  int turns = 0;
  run_ranks(*world, [&](int32_t) {
    world->sleep_ns(1);
    ++turns;
  });
  EXPECT_EQ(turns, 3);
}

TEST(SimWorld, WhatIsSentByReferenceIsReadInTheWritersMemoryAndCompletesAtRelease) {
  for (const char* options : {"late=0", "late=1"}) {
    auto world = make_world(options, 2);
    auto ranks = connect_all(world);
    run_ranks(*world, [&](int32_t r) {
      Rank& rank = ranks[static_cast<size_t>(r)];
      if (r == 0) {
        char memory[] = "first";
        auto registration = rank.transport->register_memory({memory, sizeof memory, -1, 0});
        EXPECT_TRUE(registration.ok());
        SendEnd* send = *rank.transport->open_send({0, 0, 1}, {64, 2});
        EXPECT_EQ(send->send_reference({1, 5}, memory, *registration), SendOutcome::kPosted);
        EXPECT_EQ(send->accepted(), 1u);
        EXPECT_EQ(send->completed(), 0u);
        std::memcpy(memory, "later", 5);  // wrong for a user, and shows where the reader looks
        while (send->completed() < send->accepted()) rank.sleep(world->env(), kNeverNs);
        const SendOutcome plain =
            std::string(options) == "late=1" ? SendOutcome::kPosted : SendOutcome::kDone;
        EXPECT_EQ(send->send({2, 5}, memory), plain);
        while (send->completed() < send->accepted()) rank.sleep(world->env(), kNeverNs);
        rank.transport->deregister_memory(*registration);
      } else {
        RecvEnd* receive = *rank.transport->open_recv({0, 0, 1}, {64, 2});
        Message message;
        for (int i = 0; i < 2; ++i) {
          while (!receive->lend(&message)) rank.sleep(world->env(), kNeverNs);
          EXPECT_EQ(std::memcmp(message.data, "later", 5), 0);
          receive->release();
        }
      }
    });
  }
}

TEST(SimWorld, ControlMessagesArriveInOrderAndAFarewellComesLast) {
  auto world = make_world("seed=4,jitter=3", 2);
  std::vector<std::unique_ptr<MessageLinks>> links;
  for (int32_t r = 0; r < 2; ++r) links.push_back(world->make_links(r));
  std::string got;
  int posted = 0;
  run_ranks(*world, [&](int32_t r) {
    MessageLinks& mine = *links[static_cast<size_t>(r)];
    const int32_t other[] = {1 - r};
    if (r == 1) world->sleep_ns(500 * kMicrosecond);  // opens late: the messages wait
    auto waiter = world->env().make_waiter();
    bool ended = false;
    MessageLinks::Handlers handlers;
    handlers.message = [&](int32_t, const std::string& text) { got += text; };
    handlers.closed = [&](int32_t, bool orderly) {
      EXPECT_TRUE(orderly);
      ended = true;
      waiter->notify();
    };
    EXPECT_TRUE(mine.open(other, handlers, kNeverNs).ok());
    if (r == 0) {
      mine.post([&] { ++posted; }, 10);
      for (char c = 'a'; c <= 'z'; ++c) mine.send(1, std::string(1, c));
      world->sleep_ns(100);
      mine.close();
    } else {
      Waiter* const waiters[] = {waiter.get()};
      while (!ended) world->env().wait(waiters, kNeverNs);
      mine.close();
    }
  });
  EXPECT_EQ(got, "abcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(posted, 1);
}

TEST(SimWorld, ThreadsThatNeverComeAreGivenUpAfterSomePatience) {
  auto world = make_world("patience_ms=50", 3);
  world->env().enter(0);
  world->sleep_ns(1000);
  EXPECT_EQ(world->env().now_ns(), 1000000000 + 1000);
  world->env().leave(0);
}

TEST(SimWorld, ASubworldRenumbersItsRanks) {
  auto world = make_world("seed=6", 4);
  auto parents = connect_all(world);
  const std::vector<int32_t> odd{3, 1};
  std::vector<std::unique_ptr<MessageLinks>> links(2);
  std::vector<std::shared_ptr<World>> subs(2);
  for (size_t r = 0; r < 2; ++r) subs[r] = world->subworld(odd);
  for (int32_t r = 0; r < 2; ++r) {
    links[static_cast<size_t>(r)] = subs[static_cast<size_t>(r)]->make_links(r);
  }
  int32_t from = -1;
  run_ranks(*world, [&](int32_t r) {
    if (r % 2 == 0) return;
    const int32_t mine = r == 3 ? 0 : 1;
    const int32_t other[] = {1 - mine};
    MessageLinks::Handlers handlers;
    handlers.message = [&](int32_t sender, const std::string&) { from = sender; };
    handlers.closed = [](int32_t, bool) {};
    EXPECT_TRUE(links[static_cast<size_t>(mine)]->open(other, handlers, kNeverNs).ok());
    if (mine == 0) links[0]->send(1, "hello");
    subs[static_cast<size_t>(mine)]->env().enter(mine);
    world->sleep_ns(100 * kMicrosecond);
    subs[static_cast<size_t>(mine)]->env().leave(mine);
  });
  EXPECT_EQ(from, 0);
  for (auto& link : links) link->close();
}

TEST(SimWorld, ThreeHundredRanksPassATokenAround) {
  constexpr int32_t kRanks = 300;
  auto world = make_world("seed=9", kRanks);
  auto ranks = connect_all(world);
  int64_t hops = 0;
  run_ranks(*world, [&](int32_t r) {
    Rank& rank = ranks[static_cast<size_t>(r)];
    SendEnd* send = *rank.transport->open_send({0, r, (r + 1) % kRanks}, {64, 2});
    RecvEnd* receive = *rank.transport->open_recv({0, (r + kRanks - 1) % kRanks, r}, {64, 2});
    for (int round = 0; round < 2; ++round) {
      if (r != 0) {
        Message message;
        while (!receive->lend(&message)) rank.sleep(world->env(), kNeverNs);
        receive->release();
      }
      EXPECT_EQ(hops++ % kRanks, r);
      EXPECT_EQ(send->send({0, 0}, nullptr), SendOutcome::kDone);
      if (r == 0) {
        Message message;
        while (!receive->lend(&message)) rank.sleep(world->env(), kNeverNs);
        receive->release();
      }
    }
  });
  EXPECT_EQ(hops, 2 * kRanks);
  EXPECT_FALSE(world->deadlocked());
}

TEST(SimWorld, ALeavingPeerIsSeenAfterItsLastMessage) {
  auto world = make_world("", 2);
  auto ranks = connect_all(world);
  run_ranks(*world, [&](int32_t r) {
    Rank& rank = ranks[static_cast<size_t>(r)];
    if (r == 0) {
      SendEnd* send = *rank.transport->open_send({0, 0, 1}, {1u << 20, 2});
      const std::vector<char> bytes(1u << 20, 'y');
      EXPECT_EQ(send->send({0, 1u << 20}, bytes.data()), SendOutcome::kDone);
      rank.transport->close();
      return;
    }
    RecvEnd* receive = *rank.transport->open_recv({0, 0, 1}, {1u << 20, 2});
    Message message;
    while (!receive->lend(&message)) {
      EXPECT_FALSE(rank.transport->peer_left(0));
      rank.sleep(world->env(), kNeverNs);
    }
    EXPECT_EQ(message.data[(1u << 20) - 1], std::byte('y'));
    receive->release();
    while (!rank.transport->peer_left(0)) rank.sleep(world->env(), kNeverNs);
    EXPECT_TRUE(rank.transport->status().ok());
  });
}

TEST(SimWorld, WrongOptionsAndAddressesAreRefused) {
  for (const char* bad : {"seed=x", "speed=3", "gbps=0", "jitter", "latency_us=-1", "seed="}) {
    EXPECT_EQ(make_sim_world(bad, 2).status().code(), Code::kInvalidArgument) << bad;
  }
  EXPECT_TRUE(make_sim_world("seed=7,latency_us=2,gbps=10,overhead_us=0.3,jitter=0.5", 2).ok());
  EXPECT_EQ(make_sim_world("", 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(make_sim_transport({}).status().code(), Code::kInvalidUsage);
  auto world = make_world("", 2);
  auto other = make_world("", 2);
  auto ranks = connect_all(other);
  auto waiter = world->env().make_waiter();
  TransportContext context;
  context.env = &world->env();
  context.waiter = waiter.get();
  context.ranks = 2;
  context.world = world;
  auto transport = make_sim_transport(context);
  ASSERT_TRUE(transport.ok());
  const std::string foreign[] = {(*transport)->address(), ranks[1].transport->address()};
  EXPECT_EQ((*transport)->connect(foreign).code(), Code::kRemoteError);
}

}  // namespace
}  // namespace unisono
