// The one suite that every transport passes. A transport joins it by naming itself in a file of its
// own:
//
//   #include "tests/transports/conformance.h"
//   namespace unisono::testing {
//   INSTANTIATE_TEST_SUITE_P(shm, Conformance, ::testing::Values(Setup{"shm"}), name_of);
//   }
//
// Tests of what a transport does not claim (TransportCaps) skip themselves.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>

#include "tests/transports/rig.h"

namespace unisono::testing {

class Conformance : public ::testing::TestWithParam<Setup> {
 protected:
  static constexpr uint64_t kSeed = 20240607;
  void SetUp() override {
    RecordProperty("seed", std::to_string(kSeed));
    std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
    const TransportEntry* entry = find_transport(GetParam().transport);
    ASSERT_NE(entry, nullptr) << GetParam().transport;
    if (Status able = entry->available(nullptr); !able.ok()) GTEST_SKIP() << able.message();
  }
  static SendEnd* open_send(Rig& rig, const ChannelKey& key, const ChannelShape& shape) {
    auto end = rig[key.writer].open_send(key, shape);
    EXPECT_TRUE(end.ok()) << end.status().message();
    return end.ok() ? *end : nullptr;
  }
  static RecvEnd* open_recv(Rig& rig, int rank, const ChannelKey& key, const ChannelShape& shape) {
    auto end = rig[rank].open_recv(key, shape);
    EXPECT_TRUE(end.ok()) << end.status().message();
    return end.ok() ? *end : nullptr;
  }
  // Waits for the next message, which is to be number `index`, and releases it.
  static void take(Rig& rig, RecvEnd& end, uint64_t index, size_t bytes) {
    Message message;
    ASSERT_TRUE(rig.until([&] { return end.lend(&message); })) << "message " << index;
    ASSERT_TRUE(is_pattern(message, index, bytes));
    end.release();
  }
  // Full slices until there is no credit (of any message in flight): how many were taken.
  static uint64_t fill(SendEnd& end, const ChannelShape& shape, uint64_t first = 0) {
    uint64_t sent = 0;
    while (sent < 1000 &&
           send_pattern(end, first + sent, shape.slice_bytes) != SendOutcome::kAgain) {
      ++sent;
    }
    return sent;
  }
};

TEST_P(Conformance, EveryPeerIsReachedOnceReadyAndNobodyReachesItself) {
  Rig rig(GetParam(), 3);
  for (int rank = 0; rank < 3; ++rank) {
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(rig[rank].reaches(peer), rank != peer) << rank << " to " << peer;
    }
    EXPECT_FALSE(rig[rank].reaches(-1));
    EXPECT_FALSE(rig[rank].reaches(3));
    EXPECT_TRUE(rig[rank].status().ok());
  }
}

TEST_P(Conformance, MessagesOfAChannelArriveOnceInOrderAndIntact) {
  Rig rig(GetParam(), 2);
  const ChannelKey key{3, 0, 1};
  const ChannelShape shape{16384, 4};
  SendEnd* send = open_send(rig, key, shape);
  RecvEnd* recv = open_recv(rig, 1, key, shape);
  std::mt19937_64 random(kSeed);
  std::vector<size_t> sizes;
  for (int i = 0; i < 3000; ++i) {
    sizes.push_back(random() % 3 == 0 ? random() % (shape.slice_bytes + 1) : random() % 100);
  }
  size_t sent = 0, received = 0;
  ASSERT_TRUE(rig.until([&] {
    while (sent < sizes.size() && random() % 5 != 0) {
      if (send_pattern(*send, sent, sizes[sent]) == SendOutcome::kAgain) break;
      ++sent;
    }
    Message message;
    while (received < sizes.size() && random() % 5 != 0 && recv->lend(&message)) {
      EXPECT_TRUE(is_pattern(message, received, sizes[received]));
      recv->release();
      ++received;
    }
    // A turn that chose not to look has no reason to be woken.
    rig.waiter(0).notify();
    return received == sizes.size() || HasFailure();
  }));
  EXPECT_EQ(received, sizes.size());
  EXPECT_EQ(send->accepted(), sizes.size());
  EXPECT_TRUE(rig.until([&] { return send->completed() == send->accepted(); }));
  Message message;
  EXPECT_FALSE(recv->lend(&message));
}

TEST_P(Conformance, EverySizeFromNothingToTheSliceArrives) {
  Rig rig(GetParam(), 2);
  const ChannelKey key{0, 1, 0};
  const ChannelShape shape{700, 2};
  SendEnd* send = open_send(rig, key, shape);
  RecvEnd* recv = open_recv(rig, 0, key, shape);
  for (size_t bytes = 0; bytes <= shape.slice_bytes; ++bytes) {
    ASSERT_TRUE(
        rig.until([&] { return send_pattern(*send, bytes, bytes) != SendOutcome::kAgain; }));
    ASSERT_NO_FATAL_FAILURE(take(rig, *recv, bytes, bytes));
  }
}

TEST_P(Conformance, ASenderHasAtLeastKSlotsThenNoCreditAndReleasesBringItBack) {
  Rig rig(GetParam(), 2);
  const ChannelKey key{1, 0, 1};
  const ChannelShape shape{8192, 3};
  SendEnd* send = open_send(rig, key, shape);
  RecvEnd* recv = open_recv(rig, 1, key, shape);
  uint64_t sent = fill(*send, shape);
  EXPECT_GE(sent, shape.slots);
  EXPECT_LE(sent, shape.slots + 64);
  EXPECT_EQ(send->accepted(), sent);
  for (uint64_t taken = 0; taken < 200; ++taken) {
    ASSERT_NO_FATAL_FAILURE(take(rig, *recv, taken, shape.slice_bytes));
    while (sent <= taken + 1) {
      ASSERT_TRUE(rig.until(
          [&] { return send_pattern(*send, sent, shape.slice_bytes) != SendOutcome::kAgain; }));
      ++sent;
    }
  }
  // Everything released: all K slots are there again.
  for (uint64_t index = 200; index < sent; ++index) {
    ASSERT_NO_FATAL_FAILURE(take(rig, *recv, index, shape.slice_bytes));
  }
  uint64_t again = 0;
  ASSERT_TRUE(rig.until([&] {
    again += fill(*send, shape, sent + again);
    return again >= shape.slots;
  }));
}

TEST_P(Conformance, ALentMessageStaysTheSameUntilReleased) {
  Rig rig(GetParam(), 2);
  const ChannelKey key{0, 0, 1};
  const ChannelShape shape{4096, 4};
  SendEnd* send = open_send(rig, key, shape);
  RecvEnd* recv = open_recv(rig, 1, key, shape);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_NE(send_pattern(*send, i, 1000), SendOutcome::kAgain);
  Message first, second;
  ASSERT_TRUE(rig.until([&] { return recv->lend(&first); }));
  ASSERT_TRUE(recv->lend(&second));
  EXPECT_EQ(first.data, second.data);
  EXPECT_TRUE(is_pattern(second, 0, 1000));
  recv->release();
  take(rig, *recv, 1, 1000);
  take(rig, *recv, 2, 1000);
}

// The reader's progress() is never called once the link stands.
TEST_P(Conformance, WhereLookingIsCheapLendSeesWhatHasComeByItself) {
  Rig rig(GetParam(), 2);
  const ChannelKey key{0, 0, 1};
  const ChannelShape shape{4096, 4};
  SendEnd* send = open_send(rig, key, shape);
  RecvEnd* recv = open_recv(rig, 1, key, shape);
  if (!rig[1].caps().cheap_poll) GTEST_SKIP() << "looking asks the kernel";
  ASSERT_NE(send_pattern(*send, 0, 8), SendOutcome::kAgain);
  ASSERT_NO_FATAL_FAILURE(take(rig, *recv, 0, 8));
  const int64_t until_ns = rig.env().now_ns() + Rig::kPatienceNs;
  for (uint64_t i = 1; i < shape.slots; ++i) {  // more would need credit
    const size_t bytes = i * 8;
    ASSERT_NE(send_pattern(*send, i, bytes), SendOutcome::kAgain);
    Message message;
    while (!recv->lend(&message) && rig.env().now_ns() < until_ns) (void)rig[0].progress();
    ASSERT_TRUE(recv->lend(&message)) << "message " << i;
    EXPECT_TRUE(is_pattern(message, i, bytes));
    recv->release();
  }
}

TEST_P(Conformance, AReservedSlotIsAlignedLongEnoughIdempotentAndSentByCommit) {
  Rig rig(GetParam(), 2);
  const ChannelKey key{0, 0, 1};
  const ChannelShape shape{5000, 2};
  SendEnd* send = open_send(rig, key, shape);
  RecvEnd* recv = open_recv(rig, 1, key, shape);
  const size_t sizes[] = {0, 8, 40, 41, 5000, 64, 1, 4999, 5000, 5000, 3000};
  for (uint64_t i = 0; i < 60; ++i) {
    const size_t bytes = sizes[i % std::size(sizes)];
    std::byte* slot = nullptr;
    ASSERT_TRUE(rig.until([&] { return (slot = send->reserve()) != nullptr; }));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slot) % 64, 0u);
    EXPECT_EQ(send->reserve(), slot);
    std::memset(slot, 0xff, shape.slice_bytes);  // all of it is ours to write
    if (bytes > 0) std::memcpy(slot, pattern(i, bytes).data(), bytes);
    send->commit(header_of(i, bytes));
    ASSERT_NO_FATAL_FAILURE(take(rig, *recv, i, bytes));
  }
  // All slots come back; the news of the last release may still be on its way.
  EXPECT_TRUE(rig.until([&] {
    while (send->reserve() != nullptr) send->commit(header_of(7, 5000));
    return send->accepted() >= 60u + shape.slots;
  }));
}

TEST_P(Conformance, APostedBufferOrTheTransportsOwnHoldsTheMessage) {
  Rig rig(GetParam(), 2);
  const ChannelKey key{0, 0, 1};
  const ChannelShape shape{4096, 4};
  SendEnd* send = open_send(rig, key, shape);
  RecvEnd* recv = open_recv(rig, 1, key, shape);
  std::vector<std::byte> buffer(3000);
  for (uint64_t i = 0; i < 30; ++i) {
    const size_t bytes = i % 3 == 1 ? 2000 : 3000;  // not always what was hoped for
    if (i % 2 == 0) recv->post(buffer.data(), 3000);
    ASSERT_TRUE(rig.until([&] { return send_pattern(*send, i, bytes) != SendOutcome::kAgain; }));
    if (i % 4 == 0) recv->cancel_post();
    ASSERT_NO_FATAL_FAILURE(take(rig, *recv, i, bytes));
  }
}

// Else it would serve the message after, which nobody has offered it to.
TEST_P(Conformance, ABufferPostedWhileAMessageIsLentIsLeftAlone) {
  Rig rig(GetParam(), 2);
  const ChannelKey key{0, 0, 1};
  const ChannelShape shape{4096, 4};
  SendEnd* send = open_send(rig, key, shape);
  RecvEnd* recv = open_recv(rig, 1, key, shape);
  for (const uint32_t bytes : {64u, 3000u}) {
    const uint64_t first = bytes == 64 ? 0 : 2;
    ASSERT_NE(send_pattern(*send, first, bytes), SendOutcome::kAgain);
    Message message;
    ASSERT_TRUE(rig.until([&] { return recv->lend(&message); }));
    std::vector<std::byte> buffer(bytes, std::byte{0x5a});
    const std::vector<std::byte> before = buffer;
    recv->post(buffer.data(), bytes);
    ASSERT_TRUE(is_pattern(message, first, bytes));
    recv->release();
    ASSERT_TRUE(
        rig.until([&] { return send_pattern(*send, first + 1, bytes) != SendOutcome::kAgain; }));
    ASSERT_NO_FATAL_FAILURE(take(rig, *recv, first + 1, bytes));
    EXPECT_EQ(buffer, before);
  }
}

TEST_P(Conformance, AChannelWithoutCreditDoesNotHoldUpAnother) {
  Rig rig(GetParam(), 2);
  const ChannelShape shape{32768, 2};
  SendEnd* stuck = open_send(rig, {0, 0, 1}, shape);
  RecvEnd* stuck_reader = open_recv(rig, 1, {0, 0, 1}, shape);
  SendEnd* send = open_send(rig, {1, 0, 1}, shape);
  RecvEnd* recv = open_recv(rig, 1, {1, 0, 1}, shape);
  const uint64_t waiting = fill(*stuck, shape);
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(rig.until([&] { return send_pattern(*send, i, i * 600) != SendOutcome::kAgain; }));
    ASSERT_NO_FATAL_FAILURE(take(rig, *recv, i, i * 600));
  }
  for (uint64_t i = 0; i < waiting; ++i) {
    ASSERT_NO_FATAL_FAILURE(take(rig, *stuck_reader, i, shape.slice_bytes));
  }
}

TEST_P(Conformance, AReaderThatOpensLateGetsEverything) {
  Rig rig(GetParam(), 2);
  const ChannelKey key{9, 0, 1};
  const ChannelShape shape{10000, 4};
  SendEnd* send = open_send(rig, key, shape);
  for (uint64_t i = 0; i < shape.slots; ++i) {
    ASSERT_TRUE(rig.until([&] { return send_pattern(*send, i, 2500 * i) != SendOutcome::kAgain; }));
  }
  RecvEnd* recv = open_recv(rig, 1, key, shape);
  for (uint64_t i = 0; i < shape.slots; ++i) {
    ASSERT_NO_FATAL_FAILURE(take(rig, *recv, i, 2500 * i));
  }
}

TEST_P(Conformance, OpeningIsIdempotentAndAnotherShapeOrAnothersChannelIsAnError) {
  Rig rig(GetParam(), 3);
  const ChannelShape shape{4096, 4};
  EXPECT_EQ(open_send(rig, {0, 0, 1}, shape), open_send(rig, {0, 0, 1}, shape));
  EXPECT_EQ(open_recv(rig, 1, {0, 0, 1}, shape), open_recv(rig, 1, {0, 0, 1}, shape));
  EXPECT_FALSE(rig[0].open_send({0, 0, 1}, {8192, 4}).ok());
  EXPECT_FALSE(rig[1].open_recv({0, 0, 1}, {4096, 2}).ok());
  EXPECT_FALSE(rig[0].open_send({0, 1, 2}, shape).ok());
  EXPECT_FALSE(rig[0].open_recv({0, 1, 2}, shape).ok());
  EXPECT_FALSE(rig[0].open_send({0, 0, 3}, shape).ok());
}

TEST_P(Conformance, EveryReaderOfAMulticastGetsEachMessageAndTheSlowestGivesCredit) {
  Rig rig(GetParam(), 3);
  if (!rig[0].caps().multicast) GTEST_SKIP() << "no multicast";
  const ChannelKey key{5, 1, kEveryone};
  const ChannelShape shape{9000, 2};
  SendEnd* send = open_send(rig, key, shape);
  RecvEnd* fast = open_recv(rig, 0, key, shape);
  RecvEnd* slow = open_recv(rig, 2, key, shape);
  const uint64_t sent = fill(*send, shape);
  EXPECT_GE(sent, shape.slots);
  for (uint64_t i = 0; i < sent; ++i) {
    ASSERT_NO_FATAL_FAILURE(take(rig, *fast, i, shape.slice_bytes));
  }
  EXPECT_EQ(fill(*send, shape), 0u) << "the slow reader still holds every slot";
  for (uint64_t i = 0; i < sent; ++i) {
    ASSERT_NO_FATAL_FAILURE(take(rig, *slow, i, shape.slice_bytes));
  }
  for (uint64_t i = 0; i < 300; ++i) {
    const size_t bytes = (i * 37) % 9001;
    ASSERT_TRUE(rig.until([&] { return send_pattern(*send, i, bytes) != SendOutcome::kAgain; }));
    ASSERT_NO_FATAL_FAILURE(take(rig, *fast, i, bytes));
    ASSERT_NO_FATAL_FAILURE(take(rig, *slow, i, bytes));
  }
}

TEST_P(Conformance, AReferenceShowsTheWritersMemoryAndCompletesWhenReleased) {
  Rig rig(GetParam(), 3);
  if (!rig[0].caps().by_reference) GTEST_SKIP() << "no sends by reference";
  const size_t bytes = 1 << 16;
  const int fd = ::memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(fd, bytes), 0);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* data = static_cast<std::byte*>(memory);
  auto registration = rig[0].register_memory({data + 4096 + 64, bytes - 8192, fd, 4096 + 64});
  ASSERT_TRUE(registration.ok()) << registration.status().message();
  EXPECT_NE(*registration, 0u);
  const ChannelShape shape{16384, 4};
  SendEnd* send = open_send(rig, {0, 0, 1}, shape);
  RecvEnd* recv = open_recv(rig, 1, {0, 0, 1}, shape);
  for (uint64_t i = 0; i < 40; ++i) {
    const size_t length = i % 4 == 0 ? 16 : 10000;
    std::byte* from = data + 4096 + 64 + i * 128;
    std::memcpy(from, pattern(i, length).data(), length);
    ASSERT_TRUE(rig.until([&] {
      return send->send_reference(header_of(i, length), from, *registration) != SendOutcome::kAgain;
    }));
    Message message;
    ASSERT_TRUE(rig.until([&] { return recv->lend(&message); }));
    ASSERT_TRUE(is_pattern(message, i, length));
    recv->release();
    ASSERT_TRUE(rig.until([&] { return send->completed() == send->accepted(); }));
  }
  rig[0].deregister_memory(*registration);
  ::munmap(memory, bytes);
  ::close(fd);
}

TEST_P(Conformance, MemoryRegisteredWithoutADescriptorStillArrives) {
  Rig rig(GetParam(), 2);
  std::vector<std::byte> memory = pattern(4, 9000);
  auto registration = rig[0].register_memory({memory.data(), memory.size(), -1, 0});
  ASSERT_TRUE(registration.ok()) << registration.status().message();
  const ChannelShape shape{16384, 4};
  SendEnd* send = open_send(rig, {0, 0, 1}, shape);
  RecvEnd* recv = open_recv(rig, 1, {0, 0, 1}, shape);
  ASSERT_TRUE(rig.until([&] {
    return send->send_reference(header_of(4, 9000), memory.data(), *registration) !=
           SendOutcome::kAgain;
  }));
  ASSERT_NO_FATAL_FAILURE(take(rig, *recv, 4, 9000));
  ASSERT_TRUE(rig.until([&] { return send->completed() == send->accepted(); }));
  rig[0].deregister_memory(*registration);
}

TEST_P(Conformance, ASleeperIsWokenByASendAndByARelease) {
  Rig rig(GetParam(), 2);
  const ChannelKey key{0, 0, 1};
  const ChannelShape shape{4096, 2};
  // Both ranks have a thread of their own and sleep whenever they cannot go on; each wakes only the
  // other.
  rig.on_threads([&](int rank) {
    if (rank == 0) {
      SendEnd* send = open_send(rig, key, shape);
      for (uint64_t i = 0; i < 400; ++i) {
        ASSERT_TRUE(rig.until(0, [&] {
          return send_pattern(*send, i, shape.slice_bytes) != SendOutcome::kAgain;
        })) << i;
      }
      ASSERT_TRUE(rig.until(0, [&] { return send->completed() == send->accepted(); }));
    } else {
      RecvEnd* recv = open_recv(rig, 1, key, shape);
      for (uint64_t i = 0; i < 400; ++i) {
        Message message;
        ASSERT_TRUE(rig.until(1, [&] { return recv->lend(&message); })) << i;
        ASSERT_TRUE(is_pattern(message, i, shape.slice_bytes));
        recv->release();
      }
    }
  });
}

TEST_P(Conformance, ANotificationBeforeTheWaitEndsIt) {
  Rig rig(GetParam(), 2);
  Waiter* const list[] = {&rig.waiter(0), &rig.waiter(1)};
  rig.env().enter(0);
  const int64_t deadline_ns = rig.env().now_ns() + Rig::kPatienceNs;
  rig.waiter(1).notify();
  rig.env().wait(list, deadline_ns);
  EXPECT_LT(rig.env().now_ns(), deadline_ns) << "the notification was lost";
  rig.env().leave(0);
}

TEST_P(Conformance, AllRanksExchangeAtOnceOnThreads) {
  const int ranks = 4;
  Rig rig(GetParam(), ranks);
  const ChannelShape shape{2048, 2};
  rig.on_threads([&](int rank) {
    std::vector<SendEnd*> sends(ranks);
    std::vector<RecvEnd*> recvs(ranks);
    std::vector<uint64_t> sent(ranks, 0), received(ranks, 0);
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      sends[peer] = open_send(rig, {2, rank, peer}, shape);
      recvs[peer] = open_recv(rig, rank, {2, peer, rank}, shape);
    }
    const uint64_t count = 300;
    const auto size_of = [&](int from, int to, uint64_t i) {
      return (i * 17 + static_cast<uint64_t>(from * 5 + to)) % 2049;
    };
    ASSERT_TRUE(rig.until(rank, [&] {
      bool done = true;
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        while (sent[peer] < count &&
               send_pattern(*sends[peer], sent[peer], size_of(rank, peer, sent[peer])) !=
                   SendOutcome::kAgain) {
          ++sent[peer];
        }
        Message message;
        while (received[peer] < count && recvs[peer]->lend(&message)) {
          EXPECT_TRUE(is_pattern(message, received[peer], size_of(peer, rank, received[peer])));
          recvs[peer]->release();
          ++received[peer];
        }
        done = done && sent[peer] == count && received[peer] == count &&
               sends[peer]->completed() == count;
      }
      return done;
    }));
  });
}

TEST_P(Conformance, APeerThatLeavesInOrderIsNoFailureAndItsLastMessagesArrive) {
  Rig rig(GetParam(), 2);
  const ChannelKey key{0, 1, 0};
  const ChannelShape shape{4096, 4};
  SendEnd* send = open_send(rig, key, shape);
  RecvEnd* recv = open_recv(rig, 0, key, shape);
  ASSERT_NE(send_pattern(*send, 0, 100), SendOutcome::kAgain);
  ASSERT_NO_FATAL_FAILURE(take(rig, *recv, 0, 100));
  EXPECT_FALSE(rig[0].peer_left(1));
  for (uint64_t i = 1; i < 4; ++i) {  // in the transport's own memory: nothing stays posted
    std::byte* slot = send->reserve();
    ASSERT_NE(slot, nullptr);
    std::ranges::copy(pattern(i, 4096), slot);
    send->commit(header_of(i, 4096));
  }
  rig.close(1);
  for (uint64_t i = 1; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(take(rig, *recv, i, 4096));
  ASSERT_TRUE(rig.until([&] { return rig[0].peer_left(1) || !rig[0].status().ok(); }));
  EXPECT_TRUE(rig[0].status().ok()) << rig[0].status().message();
}

// What is still posted belongs to an operation that failed, whose caller has its memory back.
TEST_P(Conformance, ClosingReadsNoMemoryOfCallers) {
  Rig rig(GetParam(), 2);
  const ChannelKey key{0, 0, 1};
  const ChannelShape shape{4u << 20, 3};
  SendEnd* send = open_send(rig, key, shape);
  RecvEnd* recv = open_recv(rig, 1, key, shape);
  ASSERT_NE(send_pattern(*send, 0, 100), SendOutcome::kAgain);
  ASSERT_NO_FATAL_FAILURE(take(rig, *recv, 0, 100));  // the link is up
  std::vector<std::vector<std::byte>> memory;
  for (uint64_t i = 1; i < 4; ++i) {
    memory.push_back(pattern(i, shape.slice_bytes));
    if (send->send(header_of(i, shape.slice_bytes), memory.back().data()) == SendOutcome::kAgain)
      memory.pop_back();
  }
  ASSERT_FALSE(memory.empty());
  for (auto& each : memory) std::fill(each.begin(), each.end(), std::byte{0xEE});
  rig.close(0);
  memory.clear();  // where that is the last of it, the address sanitizer tells
  uint64_t index = 1;
  // Not every transport can tell that its peer gave up.
  for (int turn = 0; turn < 10'000 && !rig[1].peer_left(0) && rig[1].status().ok(); ++turn) {
    (void)rig[1].progress();
    Message message;
    while (recv->lend(&message)) {
      EXPECT_TRUE(is_pattern(message, index, shape.slice_bytes)) << "message " << index;
      ++index;
      recv->release();
    }
  }
}

inline size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

TEST_P(Conformance, CreatingAndClosingManyTimesKeepsNoDescriptor) {
  const auto cycle = [&] {
    Rig rig(GetParam(), 2);
    const ChannelShape shape{4096, 2};
    SendEnd* send = open_send(rig, {0, 0, 1}, shape);
    RecvEnd* recv = open_recv(rig, 1, {0, 0, 1}, shape);
    ASSERT_NE(send_pattern(*send, 1, 1000), SendOutcome::kAgain);
    take(rig, *recv, 1, 1000);
  };
  cycle();
  const size_t before = open_descriptors();
  for (int i = 0; i < 30; ++i) cycle();
  EXPECT_LE(open_descriptors(), before);
}

}  // namespace unisono::testing
