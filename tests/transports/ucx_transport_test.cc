// What only the ucx transport does: messages that no rank of ours would send, options, versions.
#include <gtest/gtest.h>

#if __has_include(<ucp/api/ucp.h>)

#include <functional>
#include <string>
#include <vector>

#include "tests/lsan_with_ucx.h"
#include "tests/transports/rig.h"
#include "transports/ucx/core.h"
#include "transports/ucx/ucx_transport.h"

namespace unisono::testing {
namespace {

using namespace unisono::ucx;

constexpr Setup kOverSockets{"ucx", "tls=tcp"};
constexpr ChannelShape kShape{4096, 4};

class UcxTransport : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Status able = ucx_available(nullptr); !able.ok()) GTEST_SKIP() << able.message();
  }
};

// Sends what it wants to rank 0 of a rig, by an endpoint of its own.
class Stranger {
 public:
  explicit Stranger(Transport& victim)
      : context_(*shared_context({"tcp", ""})), worker_(std::move(*Worker::create(context_))) {
    EXPECT_TRUE(decode_address(victim.address(), &address_).ok());
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address_.worker.data());
    EXPECT_EQ(library().ucp_ep_create(worker_.get(), &params, &endpoint_), UCS_OK);
  }
  ~Stranger() {
    ucp_request_param_t param{};
    ucs_status_ptr_t request = library().ucp_ep_close_nbx(endpoint_, &param);
    if (UCS_PTR_IS_PTR(request)) library().ucp_request_free(request);
  }
  uint64_t token() const { return address_.token; }
  // A well-formed message 0 of rank 1 on channel 3.
  Frame frame() const {
    Frame frame;
    frame.channel = 3;
    frame.writer = 1;
    frame.token = address_.token;
    return frame;
  }
  void send(const Frame& frame, size_t payload = 8) {
    sent_.push_back(std::make_unique<std::vector<std::byte>>(kFrameBytes + payload));
    std::byte* bytes = sent_.back()->data();
    encode_frame(frame, std::span<std::byte, kFrameBytes>(bytes, kFrameBytes));
    send_bytes(bytes, kFrameBytes + payload);
  }
  void send_bytes(const void* bytes, size_t count) {
    ucp_request_param_t param{};
    ucs_status_ptr_t request =
        library().ucp_am_send_nbx(endpoint_, kMessageId, nullptr, 0, bytes, count, &param);
    EXPECT_FALSE(UCS_PTR_IS_ERR(request));
    if (UCS_PTR_IS_PTR(request)) library().ucp_request_free(request);
  }
  void progress() { (void)library().ucp_worker_progress(worker_.get()); }

 private:
  ucp_context_h context_;
  Worker worker_;
  Address address_;
  ucp_ep_h endpoint_ = nullptr;
  std::vector<std::unique_ptr<std::vector<std::byte>>> sent_;
};

// Until rank 0 has failed: its words.
std::string failure(Rig& rig, Stranger& stranger) {
  EXPECT_TRUE(rig.until([&] {
    stranger.progress();
    rig.waiter(0).notify();  // the stranger needs turns, too
    return !rig[0].status().ok();
  }));
  EXPECT_EQ(rig[0].status().code(), Code::kRemoteError);
  return rig[0].status().message();
}

struct Wrong {
  const char* words;
  std::function<void(Stranger&, Frame)> send;
};
// What no rank would send, and the words that it is refused with.
const Wrong kWrong[] = {
    {"it is of rank 2",
     [](Stranger& s, Frame f) {
       f.writer = 2;
       s.send(f);
     }},
    {"it is of rank 0",
     [](Stranger& s, Frame f) {
       f.writer = 0;
       s.send(f);
     }},
    {"4097 B on channel 3", [](Stranger& s, Frame f) { s.send(f, 4097); }},
    {"message 4 of channel 3",
     [](Stranger& s, Frame f) {
       f.sequence = 4;
       s.send(f);
     }},
    {"message 4294967295 of channel 3",
     [](Stranger& s, Frame f) {
       f.sequence = UINT32_MAX;
       s.send(f);
     }},
    {"message 1 of channel 3 came twice",
     [](Stranger& s, Frame f) {
       f.sequence = 1;
       s.send(f);
       s.send(f);
     }},
    {"credit for channel 9",
     [](Stranger& s, Frame f) {
       f.has_credit = true;
       f.credit_channel = 9;
       s.send(f);
     }},
    {"credit for 1 messages",
     [](Stranger& s, Frame f) {
       f.has_credit = true;
       f.credit_channel = 5;
       f.released = 1;
       s.send(f);
     }},
    {"8 B behind a frame",
     [](Stranger& s, Frame f) {
       f.kind = FrameKind::kCredit;
       s.send(f);
     }},
    {"a message after the last",
     [](Stranger& s, Frame f) {
       f.kind = FrameKind::kFarewell;
       s.send(f, 0);
       f.kind = FrameKind::kData;
       s.send(f);
     }},
    {"never opened here",
     [](Stranger& s, Frame f) {
       f.channel = 77;
       f.sequence = kMaxUnopenedMessages;
       s.send(f);
     }},
};

TEST_F(UcxTransport, RefusesMessagesThatNoRankWouldSendAndNamesTheRankTheyClaim) {
  for (const Wrong& wrong : kWrong) {
    SCOPED_TRACE(wrong.words);
    Rig rig(kOverSockets, 2);
    ASSERT_TRUE(rig[0].open_recv({3, 1, 0}, kShape).ok());
    ASSERT_TRUE(rig[0].open_send({5, 0, 1}, kShape).ok());
    Stranger stranger(rig[0]);
    wrong.send(stranger, stranger.frame());
    const std::string words = failure(rig, stranger);
    EXPECT_NE(words.find(wrong.words), std::string::npos) << words;
    EXPECT_NE(words.find("rank"), std::string::npos) << words;
  }
}

TEST_F(UcxTransport, IgnoresWhatLacksItsTokenOrIsNoFrame) {
  Rig rig(kOverSockets, 2);
  RecvEnd* recv = *rig[0].open_recv({3, 1, 0}, kShape);
  Stranger stranger(rig[0]);
  Frame stray = stranger.frame();
  ++stray.token;
  stranger.send(stray);
  stray.kind = FrameKind::kFarewell;
  stranger.send(stray, 0);
  stranger.send_bytes("short", 5);
  const std::vector<std::byte> noise = pattern(5, 100);
  stranger.send_bytes(noise.data(), noise.size());
  stranger.send(stranger.frame(), 40);  // this one is in order, and the first of its channel
  Message message;
  ASSERT_TRUE(rig.until([&] {
    stranger.progress();
    rig.waiter(0).notify();
    return recv->lend(&message) || !rig[0].status().ok();
  }));
  EXPECT_TRUE(rig[0].status().ok()) << rig[0].status().message();
  EXPECT_EQ(message.header.bytes, 40u);
  EXPECT_FALSE(rig[0].peer_left(1));
}

TEST_F(UcxTransport, LongMessagesLandInTheBufferThatWasPosted) {
  Rig rig(kOverSockets, 2);
  const ChannelShape shape{1u << 20, 2};
  SendEnd* send = *rig[0].open_send({0, 0, 1}, shape);
  RecvEnd* recv = *rig[1].open_recv({0, 0, 1}, shape);
  std::vector<std::byte> buffer(shape.slice_bytes);
  const std::vector<std::byte> data = pattern(1, shape.slice_bytes);
  recv->post(buffer.data(), shape.slice_bytes);
  ASSERT_TRUE(rig.until([&] {
    return send->send(header_of(1, shape.slice_bytes), data.data()) != SendOutcome::kAgain;
  }));
  Message message;
  ASSERT_TRUE(rig.until([&] { return recv->lend(&message); }));
  EXPECT_EQ(message.data, buffer.data());
  EXPECT_TRUE(is_pattern(message, 1, shape.slice_bytes));
  recv->release();
  EXPECT_TRUE(rig.until([&] { return send->completed() == 1; }));
}

TEST_F(UcxTransport, UnknownOptionsAndTransportsOfUcxAreErrorsInWords) {
  auto waiter = real_env().make_waiter();
  TransportContext context;
  context.env = &real_env();
  context.waiter = waiter.get();
  context.ranks = 2;
  for (const char* options : {"tls", "tls=", "fast=yes", "tls=tcp,x=1"}) {
    context.options = options;
    const auto made = make_ucx_transport(context);
    ASSERT_FALSE(made.ok()) << options;
    EXPECT_EQ(made.status().code(), Code::kInvalidArgument) << options;
    EXPECT_NE(made.status().message().find("unknown option"), std::string::npos)
        << made.status().message();
  }
  context.options = "tls=nosuch";
  const auto made = make_ucx_transport(context);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("tls=nosuch"), std::string::npos)
      << made.status().message();
}

TEST_F(UcxTransport, AnAddressOfAnotherVersionIsRefused) {
  for (const std::string& bytes : {std::string("x"), std::string("uniucx1\n"),
                                   std::string("uniucx0\n") + std::string(100, 'a'),
                                   std::string("uniucx1\n") + std::string(4096, 'a')}) {
    Address address;
    EXPECT_FALSE(decode_address(bytes, &address).ok()) << bytes.size();
  }
  Address address;
  const Address written{7, 9, "worker"};
  ASSERT_TRUE(decode_address(encode_address(written), &address).ok());
  EXPECT_EQ(address.token, 7u);
  EXPECT_EQ(address.place, 9u);
  EXPECT_EQ(address.worker, "worker");
}

}  // namespace
}  // namespace unisono::testing

#endif
