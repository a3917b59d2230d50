#include <gtest/gtest.h>

#include "tests/transports/rig.h"

namespace unisono::testing {
namespace {

constexpr Setup kSelf{"self"};
constexpr ChannelShape kShape{1000, 3};

TEST(SelfTransport, ARankReachesNobodyAndSendsToItselfInOrder) {
  Rig rig(kSelf, 1);
  EXPECT_FALSE(rig[0].reaches(0));
  EXPECT_EQ(rig[0].memory_bytes(), 0u);
  SendEnd* send = *rig[0].open_send({1, 0, 0}, kShape);
  RecvEnd* recv = *rig[0].open_recv({1, 0, 0}, kShape);
  Message message;
  EXPECT_FALSE(recv->lend(&message));
  uint64_t received = 0;
  for (uint64_t sent = 0; sent < 100;) {
    if (send_pattern(*send, sent, sent * 10) != SendOutcome::kAgain) {
      ++sent;
      continue;
    }
    EXPECT_EQ(send->accepted() - received, kShape.slots);
    ASSERT_TRUE(recv->lend(&message));
    EXPECT_TRUE(is_pattern(message, received, received * 10));
    recv->release();
    ++received;
  }
  EXPECT_EQ(send->completed(), 100u);
  EXPECT_EQ(rig[0].memory_bytes(), kShape.slots * kShape.slice_bytes);
}

TEST(SelfTransport, AReferenceIsTheMemoryItselfUntilReleased) {
  Rig rig(kSelf, 1);
  SendEnd* send = *rig[0].open_send({0, 0, 0}, kShape);
  RecvEnd* recv = *rig[0].open_recv({0, 0, 0}, kShape);
  const std::vector<std::byte> memory = pattern(0, 500);
  auto registration = rig[0].register_memory({});
  ASSERT_TRUE(registration.ok());
  EXPECT_EQ(send->send_reference(header_of(0, 500), memory.data(), *registration),
            SendOutcome::kPosted);
  EXPECT_EQ(send_pattern(*send, 1, 20), SendOutcome::kDone);
  EXPECT_EQ(send->completed(), 0u);
  Message message;
  ASSERT_TRUE(recv->lend(&message));
  EXPECT_EQ(message.data, memory.data());
  recv->release();
  EXPECT_EQ(send->completed(), 2u);
  ASSERT_TRUE(recv->lend(&message));
  EXPECT_TRUE(is_pattern(message, 1, 20));
}

TEST(SelfTransport, ArmTellsOfAMessageOnceSoThatNobodyIsKeptAwakeByIt) {
  Rig rig(kSelf, 1);
  SendEnd* send = *rig[0].open_send({0, 0, 0}, kShape);
  ASSERT_TRUE(rig[0].open_recv({0, 0, 0}, kShape).ok());
  EXPECT_FALSE(rig[0].arm());
  ASSERT_EQ(send_pattern(*send, 0, 20), SendOutcome::kDone);
  EXPECT_TRUE(rig[0].arm());
  EXPECT_FALSE(rig[0].arm());
}

TEST(SelfTransport, AnotherRanksChannelOrAnotherShapeIsAnError) {
  Rig rig(kSelf, 1);
  ASSERT_TRUE(rig[0].open_send({0, 0, 0}, kShape).ok());
  EXPECT_FALSE(rig[0].open_recv({0, 0, 0}, {1000, 4}).ok());
  EXPECT_FALSE(rig[0].open_send({0, 0, 1}, kShape).ok());
  EXPECT_FALSE(rig[0].open_send({0, 0, kEveryone}, kShape).ok());
  EXPECT_FALSE(rig[0].open_send({1, 0, 0}, {1000, 1}).ok());
}

TEST(TransportRegistry, NamesTheTransportsInOrderOfPreference) {
  std::vector<std::string> names;
  for (const TransportEntry& entry : transport_registry()) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"self", "shm", "ucx", "tcp", "sim"}));
  for (const std::string& name : names) {
    ASSERT_NE(find_transport(name), nullptr);
    EXPECT_EQ(find_transport(name)->name, name);
    std::string detail;
    const Status able = find_transport(name)->available(&detail);
    EXPECT_TRUE(able.ok() || name == "ucx") << name;  // which may not be installed, and says so
    EXPECT_EQ(able.message().empty(), able.ok());
    EXPECT_EQ(find_transport(name)->make_world != nullptr, name == "sim");
  }
  EXPECT_EQ(find_transport("rdma"), nullptr);
}

}  // namespace
}  // namespace unisono::testing
