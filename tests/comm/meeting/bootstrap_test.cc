// Ids and the rendezvous that they lead to.
#include <dirent.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/env.h"
#include "comm/bootstrap/bootstrap.h"
#include "comm/bootstrap/meeting.h"
#include "comm/bootstrap/rendezvous.h"
#include "comm/bootstrap/unique_id.h"

namespace unisono {
namespace {

using Table = Result<std::vector<std::string>>;

int64_t in_seconds(int64_t seconds) {
  return real_env().now_ns() + seconds * 1'000'000'000;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

int open_descriptors() {
  int count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// Every rank in a thread of its own; `payload` of each.
std::vector<Table> exchange_all(const UniqueId& id, int ranks,
                                const std::function<std::string(int)>& payload) {
  std::vector<Table> tables(ranks, Table(std::vector<std::string>()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(
        [&, rank] { tables[rank] = exchange(id, ranks, rank, payload(rank), in_seconds(60)); });
  }
  for (std::thread& thread : threads) thread.join();
  return tables;
}

TEST(UniqueIdTest, WhatIsEncodedIsDecoded) {
  bootstrap::IdFields fields;
  fields.job = 0x0123456789abcdef;
  fields.unix_number = 42;
  fields.secret.fill(7);
  for (const char* host : {"10.1.2.3", "2001:db8::7", "127.0.0.1"}) {
    auto address = net::parse_address(host, 4711);
    ASSERT_TRUE(address.ok());
    fields.addresses.push_back(*address);
  }
  auto back = bootstrap::decode_id(bootstrap::encode_id(fields));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->job, fields.job);
  EXPECT_EQ(back->secret, fields.secret);
  EXPECT_EQ(bootstrap::unix_name(*back), bootstrap::unix_name(fields));
  ASSERT_EQ(back->addresses.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(back->addresses[i].text(), fields.addresses[i].text());
}

TEST(UniqueIdTest, ADamagedIdIsRefusedNamingTheArgument) {
  auto id = create_unique_id();
  ASSERT_TRUE(id.ok()) << id.status().message();
  for (size_t i = 0; i < id->bytes.size(); ++i) {
    UniqueId damaged = *id;
    damaged.bytes[i] = static_cast<char>(damaged.bytes[i] ^ 0x10);
    const auto read = read_unique_id(damaged);
    ASSERT_FALSE(read.ok()) << i;
    EXPECT_EQ(read.status().code(), Code::kInvalidArgument);
    EXPECT_TRUE(contains(read.status().message(), "id:"));
  }
  EXPECT_FALSE(read_unique_id(UniqueId()).ok());
  bootstrap::withdraw_meeting(*id);
}

TEST(UniqueIdTest, GlobalAddressesArePreferredAndLoopbackIsTheLastResort) {
  std::vector<net::Address> usable;
  for (const char* host : {"::1", "127.0.0.1", "169.254.1.1", "2001:db8::1", "10.0.0.1"}) {
    usable.push_back(*net::parse_address(host, 0));
  }
  const auto chosen = bootstrap::choose_addresses(usable);
  ASSERT_EQ(chosen.size(), bootstrap::kMaxIdAddresses);
  EXPECT_EQ(chosen[0].text(), "10.0.0.1:0");
  EXPECT_EQ(chosen[1].text(), "[2001:db8::1]:0");
  EXPECT_EQ(chosen[2].text(), "169.254.1.1:0");
}

TEST(UniqueIdTest, ManyBridgesOfOneFamilyDoNotKeepTheOtherOut) {
  std::vector<net::Address> usable;
  for (const char* host : {"172.17.0.1", "172.18.0.1", "172.19.0.1", "172.20.0.1", "2001:db8::1"}) {
    usable.push_back(*net::parse_address(host, 0));
  }
  const auto chosen = bootstrap::choose_addresses(usable);
  ASSERT_EQ(chosen.size(), bootstrap::kMaxIdAddresses);
  EXPECT_EQ(chosen[0].text(), "172.17.0.1:0");
  EXPECT_EQ(chosen[1].text(), "172.18.0.1:0");
  EXPECT_EQ(chosen[2].text(), "[2001:db8::1]:0");
}

TEST(UniqueIdTest, ALinkLocalAddressKeepsTheInterfaceByWhichItWasReached) {
  bootstrap::IdFields fields;
  for (const char* host : {"fe80::1%lo", "10.0.0.1", "2001:db8::1"}) {
    fields.addresses.push_back(*net::parse_address(host, 7));
  }
  const auto read = bootstrap::decode_id(bootstrap::encode_id(fields));
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->addresses.size(), 3u);
  EXPECT_EQ(read->addresses[0].text(), "[fe80::1%lo]:7");
  EXPECT_EQ(read->addresses[1].text(), "10.0.0.1:7");
  EXPECT_EQ(read->addresses[2].text(), "[2001:db8::1]:7");
}

TEST(RendezvousTest, EveryRankGetsEveryPayloadInRankOrder) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (const int ranks : {1, 2, 3, 17}) {
    auto id = create_unique_id();
    ASSERT_TRUE(id.ok()) << id.status().message();
    std::vector<std::string> payloads;
    for (int rank = 0; rank < ranks; ++rank) {
      payloads.push_back(std::string(random() % 3000, static_cast<char>('a' + rank)));
    }
    payloads[0] = std::string(kMaxPayloadBytes, 'x');
    const auto tables = exchange_all(*id, ranks, [&](int rank) { return payloads[rank]; });
    for (const Table& table : tables) {
      ASSERT_TRUE(table.ok()) << table.status().message();
      EXPECT_TRUE(*table == payloads);
    }
  }
}

TEST(RendezvousTest, AloneNoNetworkIsNeeded) {
  const auto table = exchange(UniqueId(), 1, 0, "me", in_seconds(60));
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(*table, std::vector<std::string>{"me"});
}

TEST(RendezvousTest, MeetingsOfOneProcessDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  for (int meeting = 0; meeting < 6; ++meeting) {
    threads.emplace_back([meeting] {
      auto id = create_unique_id();
      ASSERT_TRUE(id.ok());
      const std::string text = std::to_string(meeting);
      for (const Table& table : exchange_all(*id, 3, [&](int) { return text; })) {
        ASSERT_TRUE(table.ok()) << table.status().message();
        EXPECT_EQ(*table, std::vector<std::string>(3, text));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Two clients that contradict each other: both must hear why.
void expect_both_told(int32_t ranks_a, int32_t rank_a, int32_t ranks_b, int32_t rank_b,
                      const std::vector<std::string>& parts) {
  auto id = create_unique_id();
  ASSERT_TRUE(id.ok());
  Table a = std::vector<std::string>(), b = a;
  std::thread other([&] { a = exchange(*id, ranks_a, rank_a, "a", in_seconds(60)); });
  b = exchange(*id, ranks_b, rank_b, "b", in_seconds(60));
  other.join();
  for (const Table* table : {&a, &b}) {
    ASSERT_FALSE(table->ok());
    EXPECT_EQ(table->status().code(), Code::kInvalidArgument);
    for (const std::string& part : parts) {
      EXPECT_TRUE(contains(table->status().message(), part)) << table->status().message();
    }
  }
}

TEST(RendezvousTest, ARankTakenTwiceIsToldToAll) {
  expect_both_told(3, 1, 3, 1, {"rank 1", "twice"});
}

TEST(RendezvousTest, DifferentNumbersOfRanksAreToldToAll) {
  expect_both_told(3, 0, 4, 1, {"rank 0", "rank 1", "3", "4"});
}

TEST(RendezvousTest, ARankOutOfRangeIsToldToAll) {
  expect_both_told(3, 0, 3, 3, {"rank 3", "0..2"});
}

TEST(RendezvousTest, ATimeoutNamesTheMissingRanksToEveryRank) {
  auto id = create_unique_id();
  ASSERT_TRUE(id.ok());
  Table patient = std::vector<std::string>();
  std::thread other([&] { patient = exchange(*id, 4, 3, "d", in_seconds(60)); });
  const Table hasty = exchange(*id, 4, 1, "b", real_env().now_ns() + 700'000'000);
  other.join();
  ASSERT_FALSE(hasty.ok());
  EXPECT_EQ(hasty.status().code(), Code::kTimeout);
  EXPECT_TRUE(contains(hasty.status().message(), "0, 2")) << hasty.status().message();
  ASSERT_FALSE(patient.ok());
  EXPECT_EQ(patient.status().code(), Code::kRemoteError);
  EXPECT_TRUE(contains(patient.status().message(), "rank 1 left")) << patient.status().message();
}

TEST(RendezvousTest, AnIdServesOneExchange) {
  auto id = create_unique_id();
  auto keeps_the_server_open = create_unique_id();
  ASSERT_TRUE(id.ok() && keeps_the_server_open.ok());
  for (const Table& table : exchange_all(*id, 2, [](int) { return "x"; })) ASSERT_TRUE(table.ok());
  EXPECT_EQ(bootstrap::probe_unique_id(*id, in_seconds(60)).code(), Code::kRemoteError);
  EXPECT_TRUE(bootstrap::probe_unique_id(*keeps_the_server_open, in_seconds(60)).ok());
  bootstrap::withdraw_meeting(*keeps_the_server_open);
}

TEST(RendezvousTest, WhoDoesNotKnowTheSecretGetsNothing) {
  auto id = create_unique_id();
  ASSERT_TRUE(id.ok());
  auto fields = bootstrap::decode_id(*id);
  ASSERT_TRUE(fields.ok());
  fields->secret[5] ^= 1;
  const UniqueId forged = bootstrap::encode_id(*fields);
  EXPECT_EQ(bootstrap::probe_unique_id(forged, in_seconds(60)).code(), Code::kRemoteError);
  // And the true ranks still meet.
  for (const Table& table : exchange_all(*id, 2, [](int) { return "x"; })) EXPECT_TRUE(table.ok());
}

TEST(RendezvousTest, NonsenseFromStrangersIsDroppedAndHurtsNobody) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  auto id = create_unique_id();
  ASSERT_TRUE(id.ok());
  auto fields = bootstrap::decode_id(*id);
  for (int i = 0; i < 40; ++i) {
    auto fd = net::start_connect(net::unix_address(bootstrap::unix_name(*fields)));
    ASSERT_TRUE(fd.ok()) << fd.status().message();
    std::string noise = i % 3 == 0
                            ? std::string()
                            : bootstrap::opening_bytes(i % 3 == 1 ? bootstrap::kRendezvousMagic
                                                                  : bootstrap::kHandoutMagic,
                                                       i % 2 == 0 ? fields->job : random());
    for (size_t n = random() % 400; n > 0; --n) noise.push_back(static_cast<char>(random()));
    (void)send(fd->get(), noise.data(), noise.size(), MSG_NOSIGNAL);
  }
  for (const Table& table : exchange_all(*id, 2, [](int) { return "x"; })) EXPECT_TRUE(table.ok());
}

TEST(RendezvousTest, ADeadClientFailsTheOthersWithItsRank) {
  auto id = create_unique_id();
  ASSERT_TRUE(id.ok());
  // The short deadline stands for a death: the connection ends either way.
  Table waits = std::vector<std::string>();
  std::thread other([&] { waits = exchange(*id, 3, 0, "a", in_seconds(60)); });
  (void)exchange(*id, 3, 2, "c", real_env().now_ns() + 300'000'000);
  other.join();
  ASSERT_FALSE(waits.ok());
  EXPECT_TRUE(contains(waits.status().message(), "rank 2")) << waits.status().message();
  EXPECT_TRUE(contains(waits.status().message(), "not there: 1")) << waits.status().message();
}

TEST(RendezvousTest, ThousandsOfIdsNeedNoDescriptors) {
  // Failed meetings of other tests may still be kept for latecomers.
  const size_t live = bootstrap::live_meetings();
  const int before = open_descriptors();
  std::vector<UniqueId> ids;
  for (int i = 0; i < 3000; ++i) {
    auto id = create_unique_id();
    ASSERT_TRUE(id.ok()) << id.status().message();
    ids.push_back(*id);
  }
  EXPECT_LT(open_descriptors(), before + 12);
  for (const UniqueId& id : ids) bootstrap::withdraw_meeting(id);
  EXPECT_LE(bootstrap::live_meetings(), live);
  EXPECT_LE(open_descriptors(), before);
}

TEST(RendezvousTest, ManyMeetingsLeaveNothingBehind) {
  for (const Table& table : exchange_all(*create_unique_id(), 2, [](int) { return ""; })) {
    ASSERT_TRUE(table.ok());
  }
  const size_t live = bootstrap::live_meetings();
  const int before = open_descriptors();
  for (int i = 0; i < 200; ++i) {
    for (const Table& table : exchange_all(*create_unique_id(), 2, [](int) { return ""; })) {
      ASSERT_TRUE(table.ok()) << table.status().message();
    }
  }
  EXPECT_LE(bootstrap::live_meetings(), live);
  EXPECT_LE(open_descriptors(), before);
}

TEST(MeetingTest, MissingRanksAreListedBriefly) {
  bootstrap::Meeting meeting;
  EXPECT_EQ(meeting.missing(), "");
  ASSERT_TRUE(meeting.enter(100, 1, "").ok());
  EXPECT_EQ(meeting.missing(), "0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 83 more");
}

}  // namespace
}  // namespace unisono
