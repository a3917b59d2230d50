// What is tcp's own; what every transport must do is in conformance.h.
#include "transports/tcp/tcp_transport.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tests/transports/tcp_world.h"
#include "transports/tcp/frame.h"

namespace unisono {
namespace {

using testing::holds;
using testing::pattern;
using testing::RawPeer;
using testing::TcpWorld;

constexpr ChannelShape kShape{65536, 4};

struct Pair {  // rank 0 writes, rank 1 reads
  SendEnd* send = nullptr;
  RecvEnd* recv = nullptr;
};

Pair open(TcpWorld& world, uint32_t number, const ChannelShape& shape, int writer = 0,
          int reader = 1) {
  const ChannelKey key{number, writer, reader};
  auto send = world[writer].open_send(key, shape);
  auto recv = world[reader].open_recv(key, shape);
  EXPECT_TRUE(send.ok()) << send.status().message();
  EXPECT_TRUE(recv.ok()) << recv.status().message();
  return {send.ok() ? *send : nullptr, recv.ok() ? *recv : nullptr};
}

Status failure_after(TcpWorld& world, const std::function<void(RawPeer&)>& act,
                     const ChannelShape& shape = kShape) {
  RawPeer peer(world, 1, 0);
  EXPECT_TRUE(world[0].open_recv({3, 1, 0}, shape).ok());
  act(peer);
  EXPECT_TRUE(world.until([&] { return !world[0].status().ok(); }, {0}));
  return world[0].status();
}

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

TEST(TcpTransport, AFrameSurvivesEncodingAndParsing) {
  tcp::FrameHeader header;
  header.channel = 200;
  header.bytes = kMaxSliceBytes;
  header.sequence = 0xfffffff0;
  header.fingerprint = 0x0123456789abcdef;
  header.has_credit = true;
  header.credit_channel = 255;
  header.released = 0xdeadbeef;
  std::array<std::byte, tcp::kFrameBytes> bytes;
  tcp::encode_frame(header, bytes);
  tcp::FrameHeader parsed;
  ASSERT_TRUE(tcp::parse_frame(bytes, &parsed).ok());
  EXPECT_EQ(parsed, header);
}

TEST(TcpTransport, EveryChangedByteOfAFrameIsRefusedOrParsesToWhatItSays) {
  tcp::FrameHeader header;
  header.kind = tcp::FrameKind::kFarewell;
  std::array<std::byte, tcp::kFrameBytes> original;
  tcp::encode_frame(header, original);
  for (size_t at = 0; at < original.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      auto bytes = original;
      bytes[at] = static_cast<std::byte>(value);
      tcp::FrameHeader parsed;
      if (!tcp::parse_frame(bytes, &parsed).ok()) continue;
      std::array<std::byte, tcp::kFrameBytes> again;
      tcp::encode_frame(parsed, again);
      EXPECT_EQ(again, bytes) << "byte " << at << " value " << value;
    }
  }
}

TEST(TcpTransport, ASlowReaderGetsPartialWritesInOrder) {
  TcpWorld world(2);
  const ChannelShape shape{kMaxSliceBytes, 4};
  Pair pair = open(world, 1, shape);
  // 16 MiB, more than the kernel takes: some of it must be continued by progress.
  std::vector<std::vector<char>> payloads;
  for (uint64_t i = 0; i < 4; ++i) payloads.push_back(pattern(i, kMaxSliceBytes - i));
  for (uint64_t i = 0; i < 4; ++i) {
    const MessageHeader header{i, static_cast<uint32_t>(payloads[i].size())};
    EXPECT_NE(pair.send->send(header, payloads[i].data()), SendOutcome::kAgain);
  }
  EXPECT_EQ(pair.send->send({9, 0}, nullptr), SendOutcome::kAgain) << "only four slots";
  // The writer alone cannot finish: nobody reads.
  for (int turn = 0; turn < 100; ++turn) (void)world[0].progress();
  EXPECT_EQ(pair.send->accepted(), 4u);
  EXPECT_LT(pair.send->completed(), 4u);
  for (uint64_t i = 0; i < 4; ++i) {
    Message message;
    ASSERT_TRUE(world.until([&] { return pair.recv->lend(&message); }));
    EXPECT_TRUE(holds(message, i, payloads[i].size()));
    pair.recv->release();
  }
  EXPECT_TRUE(world.until([&] { return pair.send->completed() == 4; }));
  EXPECT_TRUE(world[0].status().ok() && world[1].status().ok());
}

TEST(TcpTransport, BothWaysAtOnceNeitherSideStarves) {
  TcpWorld world(2);
  const ChannelShape shape{1u << 20, 2};
  Pair there = open(world, 1, shape), back = open(world, 1, shape, 1, 0);
  const auto payload = pattern(0, shape.slice_bytes);
  uint64_t sent[2] = {0, 0}, got[2] = {0, 0};
  constexpr uint64_t kMessages = 20;
  Pair pairs[2] = {there, back};
  ASSERT_TRUE(world.until([&] {
    for (int side = 0; side < 2; ++side) {
      if (sent[side] < kMessages &&
          pairs[side].send->send({0, shape.slice_bytes}, payload.data()) != SendOutcome::kAgain) {
        ++sent[side];
      }
      Message message;
      if (!pairs[side].recv->lend(&message)) continue;
      EXPECT_TRUE(holds(message, 0, shape.slice_bytes));
      pairs[side].recv->release();
      ++got[side];
    }
    return got[0] == kMessages && got[1] == kMessages;
  }));
  EXPECT_TRUE(world.until(
      [&] { return there.send->completed() == kMessages && back.send->completed() == kMessages; }));
}

TEST(TcpTransport, SmallMessagesAreDoneBeforeTheLinkIsUp) {
  TcpWorld world(2);
  Pair pair = open(world, 1, kShape);
  auto payload = pattern(0, 100);
  EXPECT_EQ(pair.send->send({0, 100}, payload.data()), SendOutcome::kDone);
  std::fill(payload.begin(), payload.end(), 'x');
  const auto large = pattern(1, 60000);
  EXPECT_EQ(pair.send->send({1, 60000}, large.data()), SendOutcome::kPosted);
  const auto copied = pattern(2, 8);
  EXPECT_EQ(pair.send->send({2, 8}, copied.data()), SendOutcome::kDone);
  EXPECT_LT(pair.send->completed(), 2u) << "the posted one still needs its memory";
  const size_t sizes[] = {100, 60000, 8};
  for (uint64_t i = 0; i < 3; ++i) {
    Message message;
    ASSERT_TRUE(world.until([&] { return pair.recv->lend(&message); }));
    EXPECT_TRUE(holds(message, i, sizes[i]));
    pair.recv->release();
  }
  EXPECT_EQ(pair.send->completed(), 3u);
}

TEST(TcpTransport, AReservedSlotIsSentAndReused) {
  TcpWorld world(2);
  Pair pair = open(world, 5, {1000, 2});
  for (uint64_t i = 0; i < 9; ++i) {
    std::byte* slot = nullptr;
    ASSERT_TRUE(world.until([&] { return (slot = pair.send->reserve()) != nullptr; }));
    EXPECT_EQ(slot, pair.send->reserve());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slot) % 64, 0u);
    const auto payload = pattern(i, 1000 - i);
    std::memcpy(slot, payload.data(), payload.size());
    pair.send->commit({i, static_cast<uint32_t>(payload.size())});
    Message message;
    ASSERT_TRUE(world.until([&] { return pair.recv->lend(&message); }));
    EXPECT_TRUE(holds(message, i, payload.size()));
    pair.recv->release();
  }
  EXPECT_EQ(pair.send->completed(), 9u);
}

TEST(TcpTransport, MessagesToAChannelThatIsNotOpenYetWaitForIt) {
  TcpWorld world(2);
  (void)open(world, 1, kShape);
  auto send = world[0].open_send({7, 0, 1}, kShape);
  ASSERT_TRUE(send.ok());
  for (uint64_t i = 0; i < 4; ++i) {
    const auto payload = pattern(i, 40000 + i);
    const MessageHeader header{i, static_cast<uint32_t>(payload.size())};
    ASSERT_NE((*send)->send(header, payload.data()), SendOutcome::kAgain);
    // Completion needs the peer's progress only, not its step.
    ASSERT_TRUE(world.until([&] { return (*send)->completed() == i + 1; }));
  }
  EXPECT_EQ((*send)->send({9, 0}, nullptr), SendOutcome::kAgain);
  auto recv = world[1].open_recv({7, 0, 1}, kShape);
  ASSERT_TRUE(recv.ok());
  for (uint64_t i = 0; i < 4; ++i) {
    Message message;
    ASSERT_TRUE(world.until([&] { return (*recv)->lend(&message); }));
    EXPECT_TRUE(holds(message, i, 40000 + i));
    (*recv)->release();
  }
  EXPECT_TRUE(world.until([&] { return (*send)->send({4, 0}, nullptr) == SendOutcome::kDone; }));
}

TEST(TcpTransport, UnopenedChannelsAreBoundedInMessages) {
  TcpWorld world(2, 1);
  const Status failure = failure_after(world, [](RawPeer& peer) {
    for (uint32_t i = 0; i <= 4096; ++i) peer.data(9, i, {});
  });
  EXPECT_EQ(failure.code(), Code::kRemoteError);
  EXPECT_NE(failure.message().find("rank 1"), std::string::npos) << failure.message();
}

TEST(TcpTransport, AnEarlyMessageBeyondTheShapeIsTheWritersFault) {
  TcpWorld world(2, 1);
  RawPeer peer(world, 1, 0);
  peer.data(3, 0, pattern(0, 5000));
  auto first = world[0].open_recv({4, 1, 0}, kShape);
  ASSERT_TRUE(first.ok());
  peer.data(4, 0, pattern(0, 8));
  Message message;
  ASSERT_TRUE(world.until([&] { return (*first)->lend(&message); }, {0}));
  auto second = world[0].open_recv({3, 1, 0}, {4096, 2});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kRemoteError);
  EXPECT_NE(second.status().message().find("rank 1"), std::string::npos);
}

TEST(TcpTransport, MalformedStreamsAreErrorsThatNameThePeer) {
  tcp::FrameHeader good;
  good.channel = 3;
  const auto with = [&](auto change) {
    tcp::FrameHeader header = good;
    change(header);
    return [header](RawPeer& peer) { peer.frame(header); };
  };
  const std::vector<std::pair<const char*, std::function<void(RawPeer&)>>> wrong = {
      {"magic", [](RawPeer& peer) { peer.write(std::string(64, 'x').data(), 64); }},
      {"length", with([](tcp::FrameHeader& h) { h.bytes = kMaxSliceBytes + 1; })},
      {"slices", with([](tcp::FrameHeader& h) { h.bytes = kShape.slice_bytes + 1; })},
      {"was due", with([](tcp::FrameHeader& h) { h.sequence = 1; })},
      {"everyone", with([](tcp::FrameHeader& h) { h.everyone = true; })},
      {"never used", with([](tcp::FrameHeader& h) {
         h.has_credit = true;
         h.released = 1;
       })},
      {"beyond",
       [](RawPeer& peer) {
         for (uint32_t i = 0; i < 5; ++i) peer.data(3, i, {});
       }},
      {"after the last",
       [](RawPeer& peer) {
         tcp::FrameHeader farewell;
         farewell.kind = tcp::FrameKind::kFarewell;
         peer.frame(farewell);
         peer.data(3, 0, {});
       }},
  };
  for (const auto& [word, act] : wrong) {
    TcpWorld world(2, 1);
    const Status failure = failure_after(world, act);
    EXPECT_EQ(failure.code(), Code::kRemoteError) << word;
    EXPECT_NE(failure.message().find("rank 1"), std::string::npos) << failure.message();
    EXPECT_NE(failure.message().find(word), std::string::npos) << failure.message();
    EXPECT_FALSE(world[0].progress()) << "after a failure nothing moves";
    EXPECT_FALSE(world[0].open_recv({5, 1, 0}, kShape).ok());
  }
}

TEST(TcpTransport, CreditBeyondWhatWasSentIsRefused) {
  TcpWorld world(2, 1);
  RawPeer peer(world, 1, 0);
  auto send = world[0].open_send({3, 0, 1}, kShape);
  ASSERT_TRUE(send.ok());
  ASSERT_EQ((*send)->send({0, 0}, nullptr), SendOutcome::kDone);
  tcp::FrameHeader header;
  header.kind = tcp::FrameKind::kCredit;
  header.has_credit = true;
  header.credit_channel = 3;
  header.released = 2;
  peer.frame(header);
  ASSERT_TRUE(world.until([&] { return !world[0].status().ok(); }, {0}));
  EXPECT_NE(world[0].status().message().find("credit"), std::string::npos);
}

TEST(TcpTransport, ReleasesAreReportedAloneAfterHalfOfTheSlots) {
  TcpWorld world(2, 1);
  RawPeer peer(world, 1, 0);
  auto recv = world[0].open_recv({3, 1, 0}, {100, 8});
  ASSERT_TRUE(recv.ok());
  for (uint32_t i = 0; i < 4; ++i) peer.data(3, i, pattern(i, 50));
  for (uint32_t i = 0; i < 4; ++i) {
    Message message;
    ASSERT_TRUE(world.until([&] { return (*recv)->lend(&message); }, {0}));
    (*recv)->release();
  }
  tcp::FrameHeader header;
  uint32_t released = 0;
  while (released < 4) {
    ASSERT_TRUE(peer.read(world, &header));
    EXPECT_EQ(header.kind, tcp::FrameKind::kCredit);
    EXPECT_EQ(header.credit_channel, 3);
    released = header.released;
  }
  EXPECT_EQ(released, 4u);
}

TEST(TcpTransport, ASingleReleaseIsReportedBeforeSleeping) {
  TcpWorld world(2, 1);
  RawPeer peer(world, 1, 0);
  auto recv = world[0].open_recv({3, 1, 0}, {100, 100});
  ASSERT_TRUE(recv.ok());
  peer.data(3, 0, pattern(0, 50));
  Message message;
  ASSERT_TRUE(world.until([&] { return (*recv)->lend(&message); }, {0}));
  (*recv)->release();
  tcp::FrameHeader header;
  ASSERT_TRUE(peer.read(world, &header));
  EXPECT_EQ(header.kind, tcp::FrameKind::kCredit);
  EXPECT_EQ(header.released, 1u);
}

TEST(TcpTransport, ReleasesRideOnDataWhereItFlowsBack) {
  TcpWorld world(2, 1);
  RawPeer peer(world, 1, 0);
  auto recv = world[0].open_recv({3, 1, 0}, {100, 100});
  auto send = world[0].open_send({4, 0, 1}, {100, 100});
  ASSERT_TRUE(recv.ok() && send.ok());
  peer.data(3, 0, pattern(0, 50));
  Message message;
  ASSERT_TRUE(world.until([&] { return (*recv)->lend(&message); }, {0}));
  (*recv)->release();
  ASSERT_EQ((*send)->send({1, 0}, nullptr), SendOutcome::kDone);
  tcp::FrameHeader header;
  ASSERT_TRUE(peer.read(world, &header));
  EXPECT_EQ(header.kind, tcp::FrameKind::kData);
  EXPECT_TRUE(header.has_credit);
  EXPECT_EQ(header.credit_channel, 3);
  EXPECT_EQ(header.released, 1u);
}

TEST(TcpTransport, APostedBufferReceivesItsMessageAndACancelledOneDoesNot) {
  TcpWorld world(2, 1);
  RawPeer peer(world, 1, 0);
  auto recv = world[0].open_recv({3, 1, 0}, kShape);
  ASSERT_TRUE(recv.ok());
  std::vector<char> buffer(50000);
  (*recv)->post(buffer.data(), 50000);
  peer.data(3, 0, pattern(0, 50000));
  Message message;
  ASSERT_TRUE(world.until([&] { return (*recv)->lend(&message); }, {0}));
  EXPECT_EQ(static_cast<const void*>(message.data), buffer.data());
  EXPECT_TRUE(holds(message, 0, 50000));
  (*recv)->release();

  // Half of the next one has landed when the post is withdrawn.
  (*recv)->post(buffer.data(), 50000);
  const auto payload = pattern(1, 50000);
  tcp::FrameHeader header;
  header.channel = 3;
  header.sequence = 1;
  header.fingerprint = 1;
  header.bytes = 50000;
  peer.frame(header);
  peer.write(payload.data(), 20000);
  ASSERT_TRUE(
      world.until([&] { return std::memcmp(buffer.data(), payload.data(), 20000) == 0; }, {0}));
  (*recv)->cancel_post();
  std::fill(buffer.begin(), buffer.end(), 'z');
  peer.write(payload.data() + 20000, 30000);
  ASSERT_TRUE(world.until([&] { return (*recv)->lend(&message); }, {0}));
  EXPECT_NE(static_cast<const void*>(message.data), buffer.data());
  EXPECT_TRUE(holds(message, 1, 50000));
  EXPECT_EQ(buffer, std::vector<char>(50000, 'z'));
  (*recv)->release();

  // Another size than the posted one lands in a slot.
  (*recv)->post(buffer.data(), 50000);
  peer.data(3, 2, pattern(2, 49999));
  ASSERT_TRUE(world.until([&] { return (*recv)->lend(&message); }, {0}));
  EXPECT_TRUE(holds(message, 2, 49999));
  EXPECT_EQ(buffer, std::vector<char>(50000, 'z'));
}

TEST(TcpTransport, AHangUpWithoutFarewellIsAnErrorThatNamesTheRank) {
  TcpWorld world(2, 1);
  const Status failure = failure_after(world, [](RawPeer& peer) { peer.hang_up(); });
  EXPECT_EQ(failure.code(), Code::kRemoteError);
  EXPECT_NE(failure.message().find("rank 1"), std::string::npos) << failure.message();
}

TEST(TcpTransport, AfterAFailureNoSocketWakesTheWaiter) {
  TcpWorld world(3, 1);
  RawPeer good(world, 2, 0);
  auto recv = world[0].open_recv({3, 2, 0}, kShape);
  ASSERT_TRUE(recv.ok());
  good.data(3, 0, pattern(0, 100));
  Message message;
  ASSERT_TRUE(world.until([&] { return (*recv)->lend(&message); }, {0}));
  const Status failure = failure_after(world, [](RawPeer& peer) { peer.hang_up(); });
  ASSERT_EQ(failure.code(), Code::kRemoteError);
  EXPECT_FALSE(world[0].arm());
  // The bell may still ring from an arrival: consumed by one wait.
  Waiter* const waiters[] = {world.rank(0).waiter.get()};
  world.rank(0).waiter->notify();
  real_env().wait(waiters, kNeverNs);
  good.data(3, 1, pattern(1, 100));
  pollfd ready{world.rank(0).waiter->poll_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 0), 0);
  EXPECT_TRUE((*recv)->lend(&message)) << "what had arrived stays";
}

TEST(TcpTransport, AHangUpInTheMiddleOfAMessageIsAnErrorEvenAfterWholeOnes) {
  TcpWorld world(2, 1);
  const Status failure = failure_after(world, [](RawPeer& peer) {
    tcp::FrameHeader header;
    header.channel = 3;
    header.bytes = 1000;
    peer.frame(header);
    peer.write(pattern(0, 500).data(), 500);
    peer.hang_up();
  });
  EXPECT_EQ(failure.code(), Code::kRemoteError);
}

TEST(TcpTransport, APeerThatClosedInOrderHasLeftAndItsMessagesArrive) {
  TcpWorld world(2);
  Pair pair = open(world, 1, kShape), back = open(world, 2, kShape, 1, 0);
  Message message;
  ASSERT_EQ(pair.send->send({100, 0}, nullptr), SendOutcome::kDone);
  ASSERT_TRUE(world.until([&] { return pair.recv->lend(&message); }));
  pair.recv->release();
  std::vector<std::vector<char>> payloads;
  for (uint64_t i = 0; i < 3; ++i) payloads.push_back(pattern(i, 60000));
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_NE(pair.send->send({i, 60000}, payloads[i].data()), SendOutcome::kAgain);
  }
  EXPECT_FALSE(world[1].peer_left(0));
  world[0].close();
  for (auto& payload : payloads) std::fill(payload.begin(), payload.end(), 'x');  // ours again
  // What rank 1 still sends must not reset the connection under the unread messages.
  ASSERT_EQ(back.send->send({0, 10}, payloads[0].data()), SendOutcome::kDone);
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(world.until([&] { return pair.recv->lend(&message); }, {1}));
    EXPECT_TRUE(holds(message, i, 60000));
    pair.recv->release();
  }
  EXPECT_TRUE(world.until([&] { return world[1].peer_left(0); }, {1}));
  EXPECT_TRUE(world[1].status().ok()) << world[1].status().message();
  EXPECT_EQ(back.send->send({1, 10}, payloads[0].data()), SendOutcome::kAgain);
}

TEST(TcpTransport, UnreadBytesAtCloseDoNotResetTheStream) {
  TcpWorld world(2, 1);
  RawPeer peer(world, 1, 0);
  auto recv = world[0].open_recv({3, 1, 0}, kShape);
  ASSERT_TRUE(recv.ok());
  peer.data(3, 0, {});
  Message message;
  ASSERT_TRUE(world.until([&] { return (*recv)->lend(&message); }, {0}));
  peer.data(3, 1, pattern(1, 60000));
  world[0].close();
  std::string read;
  for (;;) {
    char bytes[256];
    pollfd ready{peer.fd(), POLLIN, 0};
    ASSERT_GT(poll(&ready, 1, 30000), 0);
    const ssize_t got = ::recv(peer.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
    ASSERT_GE(got, 0) << std::strerror(errno);
    if (got == 0) break;
    read.append(bytes, static_cast<size_t>(got));
  }
  ASSERT_GE(read.size(), tcp::kFrameBytes);
  tcp::FrameHeader last;
  const auto* at = reinterpret_cast<const std::byte*>(read.data() + read.size() - tcp::kFrameBytes);
  ASSERT_TRUE(
      tcp::parse_frame(std::span<const std::byte, tcp::kFrameBytes>(at, tcp::kFrameBytes), &last)
          .ok());
  EXPECT_EQ(last.kind, tcp::FrameKind::kFarewell);
}

TEST(TcpTransport, WrongChannelsAreRefusedInWords) {
  TcpWorld world(3);
  EXPECT_FALSE(world[0].open_send({1, 0, kEveryone}, kShape).ok());
  EXPECT_FALSE(world[1].open_recv({1, 0, kEveryone}, kShape).ok());
  EXPECT_FALSE(world[0].open_send({1, 1, 2}, kShape).ok());
  EXPECT_FALSE(world[0].open_recv({1, 1, 2}, kShape).ok());
  EXPECT_FALSE(world[0].open_send({1, 0, 0}, kShape).ok());
  EXPECT_FALSE(world[0].open_send({1, 0, 3}, kShape).ok());
  EXPECT_FALSE(world[0].open_send({256, 0, 1}, kShape).ok());
  EXPECT_FALSE(world[0].open_send({1, 0, 1}, {0, 4}).ok());
  EXPECT_FALSE(world[0].open_send({1, 0, 1}, {100, 1}).ok());
  EXPECT_FALSE(world[0].open_send({1, 0, 1}, {kMaxSliceBytes + 1, 4}).ok());
  auto once = world[0].open_send({1, 0, 1}, kShape), again = world[0].open_send({1, 0, 1}, kShape);
  ASSERT_TRUE(once.ok() && again.ok());
  EXPECT_EQ(*once, *again);
  EXPECT_FALSE(world[0].open_send({1, 0, 1}, {100, 4}).ok());
  EXPECT_TRUE(world[0].reaches(1) && world[0].reaches(2));
  EXPECT_FALSE(world[0].reaches(0) || world[0].reaches(-1) || world[0].reaches(3));
}

TEST(TcpTransport, CreatingAndClosingLeavesNoDescriptors) {
  const auto cycle = [] {
    TcpWorld world(2);
    Pair pair = open(world, 1, kShape);
    ASSERT_EQ(pair.send->send({1, 0}, nullptr), SendOutcome::kDone);
    Message message;
    ASSERT_TRUE(world.until([&] { return pair.recv->lend(&message); }));
    pair.recv->release();
  };
  auto loop = net::shared_event_loop();
  ASSERT_TRUE(loop.ok());
  const size_t before = open_descriptors();
  for (int i = 0; i < 20; ++i) cycle();
  // Sockets that still read their peer's end are the loop's; each turn of it may close some.
  const int64_t deadline_ns = real_env().now_ns() + testing::kPatienceNs;
  while (open_descriptors() > before && real_env().now_ns() < deadline_ns) (*loop)->run_sync([] {});
  EXPECT_EQ(open_descriptors(), before);
}

TEST(TcpTransport, OneRankNeedsNoEndpoint) {
  TransportContext context;
  auto waiter = real_env().make_waiter();
  context.env = &real_env();
  context.waiter = waiter.get();
  auto transport = make_tcp_transport(context);
  ASSERT_TRUE(transport.ok());
  const std::vector<std::string> addresses{(*transport)->address()};
  EXPECT_TRUE((*transport)->connect(addresses).ok());
  EXPECT_FALSE((*transport)->progress());
  EXPECT_FALSE((*transport)->arm());
  EXPECT_EQ((*transport)->memory_bytes(), 0u);
  (*transport)->close();
  context.ranks = 2;
  EXPECT_FALSE(make_tcp_transport(context).ok());
}

TEST(TcpTransport, AForeignAddressIsRefused) {
  TcpWorld world(2, 0);
  TransportContext context;
  context.env = &real_env();
  context.waiter = world.rank(0).waiter.get();
  context.endpoint = world.rank(0).endpoint.get();
  context.ranks = 2;
  auto transport = make_tcp_transport(context);
  ASSERT_TRUE(transport.ok());
  const std::vector<std::string> addresses{(*transport)->address(), "something else"};
  EXPECT_EQ((*transport)->connect(addresses).code(), Code::kRemoteError);
}

TEST(TcpTransport, AvailabilityListsAddresses) {
  std::string detail;
  const Status available = tcp_available(&detail);
  if (!available.ok()) GTEST_SKIP() << available.message();
  EXPECT_FALSE(detail.empty());
}

}  // namespace
}  // namespace unisono
