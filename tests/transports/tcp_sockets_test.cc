// Several sockets a peer: order, credit and the end do not depend on which socket a message takes.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>

#include "tests/transports/tcp_world.h"

namespace unisono {
namespace {

using testing::holds;
using testing::pattern;
using testing::RawPeer;
using testing::TcpWorld;

constexpr ChannelShape kShape{65536, 4};
constexpr uint32_t kLong = 60000, kShort = 100;

tcp::FrameHeader farewell(uint8_t more) {
  tcp::FrameHeader header;
  header.kind = tcp::FrameKind::kFarewell;
  header.channel = more;
  return header;
}

// Rank 0, asked for two sockets, and rank 1, which the test plays on two.
struct TwoSockets {
  TcpWorld world{2, 1, "sockets=2"};
  RawPeer first{world, 1, 0}, second{world, 1, 0};
  RecvEnd* recv = nullptr;
  SendEnd* send = nullptr;
  TwoSockets() {
    auto in = world[0].open_recv({3, 1, 0}, kShape);
    auto out = world[0].open_send({4, 0, 1}, kShape);
    EXPECT_TRUE(in.ok() && out.ok());
    recv = *in, send = *out;
  }
  void expect_message(uint64_t index, uint32_t bytes) {
    Message message;
    ASSERT_TRUE(world.until([&] { return recv->lend(&message); }, {0}));
    EXPECT_TRUE(holds(message, index, bytes)) << index;
    recv->release();
  }
  Status failure() {
    EXPECT_TRUE(world.until([&] { return !world[0].status().ok(); }, {0}));
    return world[0].status();
  }
};

TEST(TcpSockets, MessagesThatOvertakeEachOtherAreLentInOrder) {
  TwoSockets two;
  two.second.data(3, 1, pattern(1, kLong));
  two.second.data(3, 2, pattern(2, kShort));
  Message message;
  for (int turn = 0; turn < 100; ++turn) (void)two.world[0].progress();
  EXPECT_FALSE(two.recv->lend(&message)) << "message 0 is missing";
  two.first.data(3, 0, pattern(0, kLong));
  for (uint64_t i = 0; i < 3; ++i) two.expect_message(i, i == 2 ? kShort : kLong);
  // Over and over, by turns.
  for (uint64_t i = 3; i < 100; i += 2) {
    two.second.data(3, static_cast<uint32_t>(i + 1), pattern(i + 1, kLong));
    two.first.data(3, static_cast<uint32_t>(i), pattern(i, kShort));
    two.expect_message(i, kShort);
    two.expect_message(i + 1, kLong);
  }
  EXPECT_TRUE(two.world[0].status().ok()) << two.world[0].status().message();
}

TEST(TcpSockets, APostedBufferTakesItsOwnMessageThoughALaterOneComesFirst) {
  TwoSockets two;
  std::vector<char> buffer(kLong);
  two.recv->post(buffer.data(), kLong);
  two.second.data(3, 1, pattern(1, kLong));
  two.first.data(3, 0, pattern(0, kLong));
  Message message;
  ASSERT_TRUE(two.world.until([&] { return two.recv->lend(&message); }, {0}));
  EXPECT_EQ(static_cast<const void*>(message.data), buffer.data());
  EXPECT_TRUE(holds(message, 0, kLong));
  two.recv->release();
  two.expect_message(1, kLong);
}

TEST(TcpSockets, AMessageTwiceOrBeyondTheSlotsIsThePeersFault) {
  {
    TwoSockets two;
    two.second.data(3, 1, pattern(1, kLong));
    two.first.data(3, 1, pattern(1, kLong));
    EXPECT_NE(two.failure().message().find("rank 1: message 1 of channel 3 twice"),
              std::string::npos)
        << two.failure().message();
  }
  TwoSockets two;
  two.second.data(3, 4, {});
  EXPECT_NE(two.failure().message().find("beyond the 4 slots"), std::string::npos)
      << two.failure().message();
}

TEST(TcpSockets, EarlyMessagesOnAChannelThatIsNotOpenYetFindTheirPlaces) {
  TwoSockets two;
  two.second.data(7, 2, pattern(2, kShort));
  two.second.data(7, 1, pattern(1, kLong));
  two.first.data(7, 0, pattern(0, kShort));
  two.first.data(3, 0, {});
  two.expect_message(0, 0);  // the first socket is read up to here
  auto late = two.world[0].open_recv({7, 1, 0}, kShape);
  ASSERT_TRUE(late.ok()) << late.status().message();
  two.recv = *late;
  for (uint64_t i = 0; i < 3; ++i) two.expect_message(i, i == 1 ? kLong : kShort);
}

TEST(TcpSockets, LongMessagesAreSpreadAndShortOnesKeepToTheFirst) {
  TwoSockets two;
  // Both are in use by rank 0 once it has read from both.
  two.second.data(3, 1, pattern(1, kLong));
  two.first.data(3, 0, pattern(0, kShort));
  two.expect_message(0, kShort);
  two.expect_message(1, kLong);
  const auto payload = pattern(0, kLong);
  // Where message `index` of `bytes` came, taken off that socket.
  const auto socket_of = [&](uint32_t index, uint32_t bytes) {
    EXPECT_NE(two.send->send({index, bytes}, payload.data()), SendOutcome::kAgain);
    RawPeer* at = nullptr;
    tcp::FrameHeader header;
    do {  // credits come alone, too
      at = nullptr;
      const bool came = two.world.until(
          [&] {
            char byte = 0;
            for (RawPeer* peer : {&two.first, &two.second})
              if (::recv(peer->fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1) at = peer;
            return at != nullptr;
          },
          {0});
      if (!came || !at->read(two.world, &header)) return at;
    } while (header.kind != tcp::FrameKind::kData);
    EXPECT_EQ(header.sequence, index);
    EXPECT_EQ(header.bytes, bytes);
    std::vector<char> rest(bytes);
    size_t got = 0;
    EXPECT_TRUE(two.world.until(
        [&] {
          const ssize_t more = ::recv(at->fd(), rest.data() + got, bytes - got, MSG_DONTWAIT);
          if (more > 0) got += static_cast<size_t>(more);
          return got == bytes;
        },
        {0}));
    return at;
  };
  std::vector<RawPeer*> at;
  for (uint32_t i = 0; i < 4; ++i) at.push_back(socket_of(i, i < 2 ? kLong : kShort));
  EXPECT_NE(at[0], at[1]);
  EXPECT_EQ(at[2], at[3]);
}

TEST(TcpSockets, APeerHasLeftWhenAllItsSocketsSaySo) {
  TwoSockets two;
  two.first.frame(farewell(1));
  two.second.data(3, 0, pattern(0, kLong));
  two.expect_message(0, kLong);
  EXPECT_FALSE(two.world[0].peer_left(1));
  two.second.frame(farewell(1));
  EXPECT_TRUE(two.world.until([&] { return two.world[0].peer_left(1); }, {0}));
  EXPECT_TRUE(two.world[0].status().ok());
}

TEST(TcpSockets, AFarewellOnMoreSocketsThanAgreedIsRefused) {
  TwoSockets two;
  two.first.frame(farewell(2));
  EXPECT_NE(two.failure().message().find("a farewell on 3 sockets of 2"), std::string::npos)
      << two.failure().message();
}

TEST(TcpSockets, OneThatHangsUpWithoutFarewellIsAnError) {
  TwoSockets two;
  two.first.frame(farewell(1));
  two.second.hang_up();
  EXPECT_NE(two.failure().message().find("rank 1 closed its link without a farewell"),
            std::string::npos)
      << two.failure().message();
}

TEST(TcpSockets, TheLeastThatARankAsksForIsUsed) {
  TcpWorld world(2, 0, "sockets=5");
  TransportContext context;
  context.env = &real_env();
  context.ranks = 2;
  context.waiter = world.rank(0).waiter.get();
  context.endpoint = world.rank(0).endpoint.get();
  context.options = "sockets=2";
  auto transport = make_tcp_transport(context);
  ASSERT_TRUE(transport.ok());
  world.rank(0).transport = std::move(*transport);
  const std::string mine = world[0].address();
  EXPECT_TRUE(mine.ends_with("sockets=2")) << mine;
  const std::vector<std::string> addresses{mine, mine.substr(0, mine.size() - 1) + "1"};
  ASSERT_TRUE(world[0].connect(addresses).ok());
  auto recv = world[0].open_recv({3, 1, 0}, kShape);
  ASSERT_TRUE(recv.ok());
  RawPeer first(world, 1, 0), second(world, 1, 0);
  first.data(3, 0, {});
  Message message;
  ASSERT_TRUE(world.until([&] { return (*recv)->lend(&message); }, {0}));
  // The second one is closed here: it reads the end of its stream.
  char byte = 0;
  EXPECT_TRUE(world.until(
      [&] { return ::recv(second.fd(), &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET; },
      {0}));
  EXPECT_TRUE(world[0].status().ok()) << world[0].status().message();
}

TEST(TcpSockets, OptionsAreCheckedInWords) {
  TcpWorld world(2, 0);
  for (const char* wrong : {"sockets=0", "sockets=17", "sockets=", "sockets=2x", "streams=2"}) {
    TransportContext context;
    context.env = &real_env();
    context.ranks = 2;
    context.waiter = world.rank(0).waiter.get();
    context.endpoint = world.rank(0).endpoint.get();
    context.options = wrong;
    auto transport = make_tcp_transport(context);
    ASSERT_FALSE(transport.ok()) << wrong;
    EXPECT_NE(transport.status().message().find("sockets=N, from 1 to 16"), std::string::npos)
        << transport.status().message();
  }
}

}  // namespace
}  // namespace unisono
