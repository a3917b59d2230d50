// The ends of a shm channel alone, over a segment whose contents the test writes as a broken peer
// would.
#include "transports/shm/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/stream_copy.h"
#include "tests/transports/rig.h"

namespace unisono::shm {
namespace {

using unisono::testing::header_of;
using unisono::testing::is_pattern;
using unisono::testing::pattern;
using unisono::testing::send_pattern;

constexpr ChannelKey kKey{1, 0, 1};
constexpr ChannelShape kShape{32768, 4};  // beyond the eager slots

// Rank 0 writes, rank 1 reads; both in this thread, linked as the handshake would.
class ShmChannel : public ::testing::Test {
 protected:
  void SetUp() override {
    auto writers = Segment::create(0, real_env());
    auto readers = Segment::create(1, real_env());
    ASSERT_TRUE(writers.ok() && readers.ok());
    segment_ = *writers;
    link(writer_, 0, segment_);
    link(reader_, 1, *readers);
  }
  static void link(Peer& peer, int32_t rank, std::shared_ptr<Segment> segment) {
    peer.rank = rank;
    peer.segment = std::move(segment);
    peer.fence = true;
    peer.state = PeerState::kUp;
  }
  void open_send() {
    const uint64_t bytes = block_layout(kShape, 1).bytes;
    auto offset = segment_->add_channel(kKey, kShape, bytes);
    ASSERT_TRUE(offset.ok());
    offset_ = *offset;
    send_ = std::make_unique<ShmSendEnd>(kKey, kShape, *segment_, offset_,
                                         std::vector<Peer*>{&reader_}, registered_, status_);
  }
  void open_recv() {
    recv_ = std::make_unique<ShmRecvEnd>(kKey, kShape, 1, 2, writer_, clock_, reader_status_);
  }
  Descriptor& descriptor(uint64_t index) {
    std::byte* block = segment_->base() + offset_ + block_layout(kShape, 1).descriptors;
    return reinterpret_cast<Descriptor*>(block)[descriptor_index(index)];
  }
  void expect_refused(const char* words) {
    Message message;
    EXPECT_FALSE(recv_->lend(&message));
    EXPECT_FALSE(reader_status_.get().ok());
    EXPECT_EQ(reader_status_.get().code(), Code::kRemoteError);
    EXPECT_NE(reader_status_.get().message().find(words), std::string::npos)
        << reader_status_.get().message();
    EXPECT_NE(reader_status_.get().message().find("rank 0"), std::string::npos);
  }

  std::shared_ptr<Segment> segment_;
  Peer writer_, reader_;
  ReadClock clock_;
  StickyStatus status_, reader_status_;
  std::map<uint64_t, Registered> registered_;
  uint64_t offset_ = 0;
  std::unique_ptr<ShmSendEnd> send_;
  std::unique_ptr<ShmRecvEnd> recv_;
};

TEST_F(ShmChannel, ALengthBeyondTheSliceIsRefused) {
  open_send();
  open_recv();
  ASSERT_EQ(send_pattern(*send_, 0, 2000), SendOutcome::kDone);
  descriptor(0).bytes = kShape.slice_bytes + 1;
  expect_refused("beyond the slice");
}

TEST_F(ShmChannel, ALongMessageInADescriptorIsRefused) {
  open_send();
  open_recv();
  ASSERT_EQ(send_pattern(*send_, 0, 10), SendOutcome::kDone);
  descriptor(0).bytes = kInlineBytes + 1;
  expect_refused("in a descriptor");
}

TEST_F(ShmChannel, ALongMessageInAnEagerSlotIsRefused) {
  open_send();
  open_recv();
  ASSERT_EQ(send_pattern(*send_, 0, 2000), SendOutcome::kDone);
  descriptor(0).bytes = kEagerBytes + 1;
  expect_refused("in an eager slot");
}

TEST_F(ShmChannel, AnOffsetBeyondTheArenaIsRefused) {
  open_send();
  ASSERT_EQ(send_pattern(*send_, 0, kShape.slice_bytes), SendOutcome::kDone);
  for (const uint32_t where :
       {0x7fffffc0U, 0xffffffc0U, 5 * kShape.slice_bytes - 64, 0xffffffc0U | kTimed}) {
    StickyStatus fresh;
    ShmRecvEnd recv(kKey, kShape, 1, 2, writer_, clock_, fresh);
    descriptor(0).where = where;
    Message message;
    EXPECT_FALSE(recv.lend(&message));
    EXPECT_NE(fresh.get().message().find("beyond its arena"), std::string::npos) << where;
  }
}

TEST_F(ShmChannel, AnUnknownKindIsRefused) {
  open_send();
  open_recv();
  ASSERT_EQ(send_pattern(*send_, 0, 500), SendOutcome::kDone);
  descriptor(0).where = 63;
  expect_refused("unknown kind");
}

TEST_F(ShmChannel, AReferenceOutOfBoundsIsRefusedAndAnUnknownOneWaits) {
  open_send();
  open_recv();
  std::vector<std::byte> memory(2048);
  registered_[5] = {memory.data(), memory.size(), true};
  ASSERT_EQ(send_->send_reference(header_of(0, 1024), memory.data() + 512, 5),
            SendOutcome::kPosted);
  Message message;
  EXPECT_FALSE(recv_->lend(&message));
  EXPECT_TRUE(reader_status_.get().ok()) << "its mapping may still come";
  segment_->add_region(5, memory.data(), memory.size());
  ASSERT_TRUE(recv_->lend(&message));
  EXPECT_EQ(message.data, memory.data() + 512);
  const Reference beyond{5, UINT64_MAX - 512};
  std::memcpy(descriptor(0).payload, &beyond, sizeof beyond);
  expect_refused("out of bounds");
}

TEST_F(ShmChannel, ADirectoryThatIsTooLongIsRefused) {
  open_send();
  open_recv();
  segment_->header().directory_count = kDirectoryEntries + 1;
  expect_refused("directory");
}

TEST_F(ShmChannel, AChannelBeyondItsSegmentIsRefused) {
  open_send();
  const uint64_t end = segment_->bytes();
  for (const uint64_t offset :
       {end - 4096, end, end + 4096, uint64_t{0}, UINT64_MAX - 4095, offset_ + 64}) {
    StickyStatus fresh;
    ShmRecvEnd recv(kKey, kShape, 1, 2, writer_, clock_, fresh);
    segment_->header().directory[0].offset = offset;
    Message message;
    EXPECT_FALSE(recv.lend(&message));
    EXPECT_NE(fresh.get().message().find("beyond its segment"), std::string::npos) << offset;
  }
}

TEST_F(ShmChannel, AChannelOfAnotherShapeIsRefused) {
  open_send();
  open_recv();
  segment_->header().directory[0].slots = 5;
  expect_refused("another shape");
}

TEST_F(ShmChannel, ReleasesOfMessagesThatWereNeverSentAreRefused) {
  open_send();
  auto& released = reinterpret_cast<ReleasedLine*>(segment_->base() + offset_)->count;
  while (send_pattern(*send_, 0, kShape.slice_bytes) == SendOutcome::kDone) {
  }
  released = send_->accepted() + 1;
  EXPECT_EQ(send_pattern(*send_, 0, kShape.slice_bytes), SendOutcome::kAgain);
  EXPECT_EQ(status_.get().code(), Code::kRemoteError);
  EXPECT_NE(status_.get().message().find("rank 1"), std::string::npos);
}

TEST_F(ShmChannel, SmallMessagesRotateThroughTheWholeArena) {
  open_send();
  open_recv();
  std::vector<const std::byte*> seen;
  const size_t pieces = block_layout(kShape, 1).arena_bytes / 8192;
  for (uint64_t i = 0; i < 2 * pieces; ++i) {
    ASSERT_EQ(send_pattern(*send_, i, 8150), SendOutcome::kDone);
    Message message;
    ASSERT_TRUE(recv_->lend(&message));
    ASSERT_TRUE(is_pattern(message, i, 8150));
    if (i < pieces) {
      ASSERT_EQ(std::count(seen.begin(), seen.end(), message.data), 0) << i;
    } else {
      ASSERT_EQ(message.data, seen[i - pieces]) << i;
    }
    seen.push_back(message.data);
    recv_->release();
  }
}

TEST_F(ShmChannel, ASlotLeftUnsentIsUsedByTheNextSend) {
  open_send();
  open_recv();
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_NE(send_->reserve(), nullptr);
    ASSERT_EQ(send_pattern(*send_, i, 30000), SendOutcome::kDone);
    Message message;
    ASSERT_TRUE(recv_->lend(&message));
    ASSERT_TRUE(is_pattern(message, i, 30000));
    recv_->release();
  }
}

TEST_F(ShmChannel, MessagesArriveByBothKindsOfStoresAndSomeAreTimed) {
  open_send();
  open_recv();
  int timed = 0, streamed = 0;
  for (uint64_t i = 0; i < 600; ++i) {
    const uint32_t sizes[] = {32768, 30001, 4096, 3001, 32767};
    const uint32_t bytes = sizes[i % 5];
    if (i % 2 == 0) {
      std::byte* slot = send_->reserve();
      ASSERT_NE(slot, nullptr);
      const bool stream = send_->streams(bytes);
      streamed += stream ? 1 : 0;
      const std::vector<std::byte> data = pattern(i, bytes);
      stream ? stream_copy(slot, data.data(), bytes) : (void)std::ranges::copy(data, slot);
      send_->commit(header_of(i, bytes));
    } else {
      ASSERT_EQ(send_pattern(*send_, i, bytes), SendOutcome::kDone);
    }
    Message message;
    ASSERT_TRUE(recv_->lend(&message));
    ASSERT_TRUE(is_pattern(message, i, bytes));
    const bool is_timed = (descriptor(i).where & kTimed) != 0;
    recv_->release();
    if (!is_timed) continue;
    ++timed;
    uint64_t reading = 0;
    std::memcpy(&reading, descriptor(i).payload + kFirstLineBytes, sizeof reading);
    EXPECT_GT(reading, 0u);
    // A reader's lie may cost speed, and nothing else.
    if (timed % 3 == 0) std::memset(descriptor(i).payload + kFirstLineBytes, 0xff, sizeof reading);
  }
  EXPECT_GE(timed, 8);
  EXPECT_LE(timed, 100);
  EXPECT_GE(streamed, 1) << "both ways are tried";
}

TEST_F(ShmChannel, AMessageThatAnotherReaderTimesIsNotAnswered) {
  open_send();
  open_recv();
  ASSERT_EQ(send_pattern(*send_, 0, 30000), SendOutcome::kDone);
  descriptor(0).where |= kTimed;
  std::memset(descriptor(0).payload, 0x5a, kInlineBytes);
  Message message;
  ASSERT_TRUE(recv_->lend(&message));
  recv_->release();
  const auto untouched = [](std::byte one) { return one == std::byte{0x5a}; };
  EXPECT_TRUE(std::ranges::all_of(descriptor(0).payload, untouched));
}

TEST_F(ShmChannel, ArmsNewsAreToldOnce) {
  open_send();
  open_recv();
  EXPECT_FALSE(recv_->take_news());
  ASSERT_EQ(send_pattern(*send_, 0, 8), SendOutcome::kDone);
  EXPECT_TRUE(recv_->take_news());
  EXPECT_FALSE(recv_->take_news());
  Message message;
  uint64_t sent = 1;
  while (send_pattern(*send_, sent, kShape.slice_bytes) == SendOutcome::kDone) ++sent;
  EXPECT_TRUE(send_->wants_credit());
  EXPECT_FALSE(send_->take_news());
  ASSERT_TRUE(recv_->lend(&message));
  recv_->release();
  EXPECT_TRUE(send_->take_news());
  EXPECT_FALSE(send_->take_news());
}

TEST(ShmSegment, OneProcessHasOneMappingOfASegmentAndTheLastHolderUnmaps) {
  std::weak_ptr<Segment> gone;
  {
    auto own = Segment::create(3, real_env());
    ASSERT_TRUE(own.ok());
    gone = *own;
    net::Fd copy(::fcntl((*own)->fd(), F_DUPFD_CLOEXEC, 0));
    auto same = Segment::attach(std::move(copy), (*own)->nonce(), 3);
    ASSERT_TRUE(same.ok());
    EXPECT_EQ(*same, *own);
  }
  EXPECT_TRUE(gone.expired());
}

TEST(ShmSegment, WhatIsNotThePeersSealedSegmentIsRefused) {
  auto own = Segment::create(3, real_env());
  ASSERT_TRUE(own.ok());
  const auto attach = [&](int fd, Nonce nonce, int32_t rank) {
    return Segment::attach(net::Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)), nonce, rank).status().code();
  };
  Nonce other = (*own)->nonce();
  other.words[0] ^= 1;
  EXPECT_EQ(attach((*own)->fd(), other, 3), Code::kRemoteError) << "another nonce";
  const net::Fd open_file(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open_file.get(), 1 << 30), 0);
  EXPECT_EQ(attach(open_file.get(), other, 3), Code::kRemoteError) << "could be shrunk";
  ASSERT_EQ(::ftruncate(open_file.get(), 4096), 0);
  ASSERT_EQ(::fcntl(open_file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(attach(open_file.get(), other, 3), Code::kRemoteError) << "too small";
}

}  // namespace
}  // namespace unisono::shm
