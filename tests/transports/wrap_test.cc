// The decorators: each does what it says, and the whole suite passes through them.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "tests/transports/conformance.h"
#include "transports/wrap/check.h"
#include "transports/wrap/fault.h"
#include "transports/wrap/trace.h"

namespace unisono::testing {
namespace {

std::unique_ptr<Transport> checked(std::unique_ptr<Transport> inner, Env& env, int rank) {
  return wrap_check(wrap_trace(std::move(inner), env, std::make_shared<TraceLog>(64)), rank);
}
std::unique_ptr<Transport> troubled(std::unique_ptr<Transport> inner, Env&, int rank) {
  FaultOptions options;
  options.seed = 77 + static_cast<uint64_t>(rank);
  options.delay_calls = 5;
  return wrap_check(wrap_fault(std::move(inner), options), rank);
}

INSTANTIATE_TEST_SUITE_P(CheckTraceTcp, Conformance, ::testing::Values(Setup{"tcp", "", checked}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(CheckTraceShm, Conformance, ::testing::Values(Setup{"shm", "", checked}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(LateTcp, Conformance, ::testing::Values(Setup{"tcp", "", troubled}),
                         name_of);

// One channel of a transport that does what a test tells it to.
class Puppet final : public Transport, public SendEnd, public RecvEnd {
 public:
  SendOutcome outcome = SendOutcome::kDone;
  uint64_t accepted_count = 0, completed_count = 0, accepted_step = 1;
  std::deque<Message> incoming;
  uint64_t progress_calls = 0;
  std::byte* slot = nullptr;

  const TransportCaps& caps() const override { return caps_; }
  std::string address() const override { return "puppet"; }
  Status connect(std::span<const std::string>) override { return {}; }
  bool reaches(int32_t) const override { return true; }
  bool ready() const override { return true; }
  Result<SendEnd*> open_send(const ChannelKey&, const ChannelShape&) override { return this; }
  Result<RecvEnd*> open_recv(const ChannelKey&, const ChannelShape&) override { return this; }
  Result<uint64_t> register_memory(const Region&) override { return 1; }
  void deregister_memory(uint64_t) override {}
  bool progress() override {
    ++progress_calls;
    return false;
  }
  bool arm() override { return false; }
  void disarm() override {}
  Status status() const override { return {}; }
  bool peer_left(int32_t) const override { return false; }
  size_t memory_bytes() const override { return 0; }
  void close() override {}

  SendOutcome send(const MessageHeader&, const void*) override {
    if (outcome != SendOutcome::kAgain) accepted_count += accepted_step;
    return outcome;
  }
  std::byte* reserve() override { return slot; }
  void commit(const MessageHeader&) override { ++accepted_count; }
  SendOutcome send_reference(const MessageHeader& header, const void* data, uint64_t) override {
    return send(header, data);
  }
  uint64_t accepted() const override { return accepted_count; }
  uint64_t completed() const override { return completed_count; }
  bool lend(Message* message) override {
    if (incoming.empty()) return false;
    *message = incoming.front();
    return true;
  }
  void release() override { incoming.pop_front(); }

 private:
  TransportCaps caps_;
};

constexpr ChannelKey kOut{1, 0, 1}, kIn{1, 1, 0};
constexpr ChannelShape kShape{128, 2};

struct Wrapped {
  Puppet* puppet;
  std::unique_ptr<Transport> transport;
  SendEnd* send;
  RecvEnd* recv;
};
template <class Wrap>
Wrapped wrapped(Wrap wrap) {
  auto puppet = std::make_unique<Puppet>();
  Wrapped out;
  out.puppet = puppet.get();
  out.transport = wrap(std::move(puppet));
  out.send = *out.transport->open_send(kOut, kShape);
  out.recv = *out.transport->open_recv(kIn, kShape);
  EXPECT_EQ(out.send, *out.transport->open_send(kOut, kShape));
  EXPECT_EQ(out.recv, *out.transport->open_recv(kIn, kShape));
  return out;
}
Wrapped with_check(std::shared_ptr<CheckLedger> ledger = nullptr) {
  return wrapped(
      [&](std::unique_ptr<Transport> inner) { return wrap_check(std::move(inner), 0, ledger); });
}
Wrapped with_fault(const FaultOptions& options) {
  return wrapped(
      [&](std::unique_ptr<Transport> inner) { return wrap_fault(std::move(inner), options); });
}

constexpr std::byte kData[256] = {};

struct ViolationCase {
  const char* words;
  std::function<void(Wrapped&)> act;
};

void each_is_named(const std::vector<ViolationCase>& cases) {
  for (const ViolationCase& one : cases) {
    Wrapped w = with_check();
    EXPECT_TRUE(w.transport->status().ok());
    one.act(w);
    EXPECT_EQ(w.transport->status().code(), Code::kInternalError) << one.words;
    EXPECT_NE(w.transport->status().message().find(one.words), std::string::npos)
        << one.words << " / " << w.transport->status().message();
  }
}

TEST(WrapCheck, EachViolationOfASendIsNamedAndNothingElseIs) {
  each_is_named({
      {"release without", [](Wrapped& w) { w.recv->release(); }},
      {"in slices",
       [](Wrapped& w) {
         (void)w.send->send({1, 129}, kData);
       }},
      {"at null",
       [](Wrapped& w) {
         (void)w.send->send({1, 8}, nullptr);
       }},
      {"commit without",
       [](Wrapped& w) {
         w.send->commit({1, 8});
       }},
      {"accepted moved by 2",
       [](Wrapped& w) {
         w.puppet->accepted_step = 2;
         (void)w.send->send({1, 8}, kData);
       }},
      {"completed exceeds",
       [](Wrapped& w) {
         w.puppet->completed_count = 1;
         (void)w.send->completed();
       }},
      {"went back",
       [](Wrapped& w) {
         w.puppet->accepted_count = w.puppet->completed_count = 3;
         (void)w.send->completed();
         w.puppet->completed_count = 2;
         (void)w.send->completed();
       }},
      {"posted memory",
       [](Wrapped& w) {
         std::vector<std::byte> memory(64);
         w.puppet->outcome = SendOutcome::kPosted;
         (void)w.send->send({1, 64}, memory.data());
         memory[5] = std::byte{1};
         w.puppet->completed_count = 1;
         (void)w.send->completed();
       }},
      {"not aligned",
       [](Wrapped& w) {
         alignas(64) static std::byte slots[256];
         w.puppet->slot = slots + 8;
         (void)w.send->reserve();
       }},
      {"another slot",
       [](Wrapped& w) {
         alignas(64) static std::byte slots[256];
         w.puppet->slot = slots;
         (void)w.send->reserve();
         w.puppet->slot = slots + 64;
         (void)w.send->reserve();
       }},
  });
}

TEST(WrapCheck, EachViolationOfAReceiveOrOfClosingIsNamedAndNothingElseIs) {
  each_is_named({
      {"while a slot is reserved",
       [](Wrapped& w) {
         alignas(64) static std::byte slots[256];
         w.puppet->slot = slots;
         (void)w.send->reserve();
         (void)w.send->send({1, 8}, kData);
       }},
      {"were delivered",
       [](Wrapped& w) {
         w.puppet->incoming.push_back({{1, 129}, kData});
         Message message;
         EXPECT_FALSE(w.recv->lend(&message));
       }},
      {"another message before release",
       [](Wrapped& w) {
         Message message;
         w.puppet->incoming.push_back({{1, 8}, kData});
         (void)w.recv->lend(&message);
         w.puppet->incoming.front().header.fingerprint = 2;
         (void)w.recv->lend(&message);
       }},
      {"message is gone",
       [](Wrapped& w) {
         Message message;
         w.puppet->incoming.push_back({{1, 8}, kData});
         (void)w.recv->lend(&message);
         w.puppet->incoming.clear();
         (void)w.recv->lend(&message);
       }},
      {"send after close",
       [](Wrapped& w) {
         w.transport->close();
         EXPECT_EQ(w.send->send({1, 8}, kData), SendOutcome::kAgain);
       }},
      {"lend after close",
       [](Wrapped& w) {
         w.transport->close();
         Message m;
         EXPECT_FALSE(w.recv->lend(&m));
       }},
      {"progress after close",
       [](Wrapped& w) {
         w.transport->close();
         (void)w.transport->progress();
       }},
      {"open_send after close",
       [](Wrapped& w) {
         w.transport->close();
         EXPECT_FALSE(w.transport->open_send(kOut, kShape).ok());
       }},
      {"post of 129",
       [](Wrapped& w) {
         std::byte room[129];
         w.recv->post(room, 129);
       }},
  });
}

TEST(WrapCheck, ACorrectExchangeIsNoViolation) {
  Wrapped w = with_check(std::make_shared<CheckLedger>());
  alignas(64) std::byte slot[128] = {};
  w.puppet->slot = slot;
  EXPECT_EQ(w.send->reserve(), slot);
  w.send->commit({1, 100});
  EXPECT_EQ(w.send->send({1, 128}, kData), SendOutcome::kDone);
  EXPECT_EQ(w.send->send({1, 0}, nullptr), SendOutcome::kDone);
  w.puppet->completed_count = 3;
  EXPECT_EQ(w.send->completed(), 3u);
  w.puppet->incoming.push_back({{1, 128}, kData});
  Message message;
  EXPECT_TRUE(w.recv->lend(&message) && w.recv->lend(&message));
  w.recv->release();
  EXPECT_FALSE(w.recv->lend(&message));
  EXPECT_TRUE(w.transport->status().ok()) << w.transport->status().message();
}

TEST(WrapCheck, TheLedgerFindsLostSwappedChangedAndInventedMessages) {
  CheckLedger ledger;
  for (uint64_t i = 0; i < 3; ++i) ledger.sent(kOut, {i, 8}, 100 + i);
  ledger.sent(kOut, {9, 8}, 0);
  ledger.unsent(kOut);
  EXPECT_EQ(ledger.received(kIn, 1, {5, 5}, 5), "") << "a writer elsewhere";
  EXPECT_EQ(ledger.received(kOut, 1, {0, 8}, 100), "");
  EXPECT_NE(ledger.received(kOut, 1, {2, 8}, 102), "") << "number 1 was lost";
  EXPECT_NE(ledger.received(kOut, 1, {2, 8}, 999), "") << "changed";
  EXPECT_NE(ledger.received(kOut, 1, {3, 8}, 103), "") << "never sent";
  EXPECT_EQ(ledger.received(kOut, 2, {0, 8}, 100), "") << "readers count by themselves";
}

TEST(WrapTrace, CountsAndRemembersTheLatestEvents) {
  auto log = std::make_shared<TraceLog>(4);
  Wrapped w = wrapped([&](std::unique_ptr<Transport> inner) {
    return wrap_trace(std::move(inner), real_env(), log);
  });
  EXPECT_EQ(log->events().size(), 2u) << "two opened ends, each once";
  (void)w.send->send({0xabc, 8}, kData);
  w.puppet->outcome = SendOutcome::kPosted;
  (void)w.send->send({2, 16}, kData);
  w.puppet->outcome = SendOutcome::kAgain;
  (void)w.send->send({3, 32}, kData);
  w.puppet->incoming.push_back({{4, 64}, kData});
  Message message;
  EXPECT_TRUE(w.recv->lend(&message) && w.recv->lend(&message));
  w.recv->release();
  (void)w.transport->progress();
  (void)w.transport->arm();
  const TraceLog::Counts counts = log->counts();
  EXPECT_EQ(counts.sent, 2u);
  EXPECT_EQ(counts.sent_bytes, 24u);
  EXPECT_EQ(counts.posted, 1u);
  EXPECT_EQ(counts.again, 1u);
  EXPECT_EQ(counts.received, 1u);
  EXPECT_EQ(counts.received_bytes, 64u);
  EXPECT_EQ(counts.progress, 1u);
  EXPECT_EQ(counts.progress_moved, 0u);
  EXPECT_EQ(counts.arms, 1u);
  using Kind = TraceEvent::Kind;
  const Kind wanted[] = {Kind::kPosted, Kind::kAgain, Kind::kLend, Kind::kRelease};
  const auto events = log->events();
  ASSERT_EQ(events.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(events[i].kind, wanted[i]);
    if (i > 0) {
      EXPECT_GE(events[i].at_ns, events[i - 1].at_ns);
    }
  }
  EXPECT_NE(log->text().find("lend"), std::string::npos);
  EXPECT_NE(log->text().find("1:1>0  64 B  0x4"), std::string::npos) << log->text();
}

TEST(WrapFault, NoFaultsChangeNothing) {
  Wrapped w = with_fault({});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(w.send->send({1, 8}, kData), SendOutcome::kDone);
  w.puppet->incoming.push_back({{1, 8}, kData});
  Message message;
  EXPECT_TRUE(w.recv->lend(&message));
  EXPECT_FALSE(w.transport->arm());
}

TEST(WrapFault, TheSeedDecidesWhichSendsFindNoCredit) {
  const auto outcomes = [](uint64_t seed) {
    FaultOptions options;
    options.seed = seed;
    options.again_probability = 0.5;
    Wrapped w = with_fault(options);
    std::vector<bool> again;
    for (int i = 0; i < 200; ++i) {
      again.push_back(w.send->send({1, 8}, kData) == SendOutcome::kAgain);
      // Nobody would wake who waits for credit that is there.
      EXPECT_EQ(w.transport->arm(), again.back());
    }
    EXPECT_EQ(w.puppet->accepted_count,
              static_cast<uint64_t>(std::count(again.begin(), again.end(), false)));
    return again;
  };
  const auto first = outcomes(5);
  EXPECT_EQ(first, outcomes(5));
  EXPECT_NE(first, outcomes(6));
  EXPECT_GT(std::count(first.begin(), first.end(), true), 50);
  EXPECT_GT(std::count(first.begin(), first.end(), false), 50);
}

TEST(WrapFault, AReservedSlotStaysUntilCommit) {
  FaultOptions options;
  options.again_probability = 0.9;
  Wrapped w = with_fault(options);
  alignas(64) std::byte slot[128];
  w.puppet->slot = slot;
  while (w.send->reserve() == nullptr) {
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(w.send->reserve(), slot);
}

TEST(WrapFault, MessagesComeLateByProgressCallsAndNobodySleepsOnThem) {
  FaultOptions options;
  options.delay_calls = 20;
  Wrapped w = with_fault(options);
  uint64_t latest = 0;
  for (int i = 0; i < 50; ++i) {
    w.puppet->incoming.push_back({{1, 8}, kData});
    uint64_t calls = 0;
    Message message;
    while (!w.recv->lend(&message)) {
      EXPECT_TRUE(w.transport->arm());
      (void)w.transport->progress();
      ASSERT_LE(++calls, 20u);
    }
    EXPECT_TRUE(w.recv->lend(&message)) << "shown is shown";
    w.recv->release();
    latest = std::max(latest, calls);
  }
  EXPECT_GT(latest, 5u);
}

TEST(WrapFault, TheLinkDiesAfterItsMessages) {
  FaultOptions options;
  options.fail_peer = 1;
  options.fail_after = 3;
  Wrapped w = with_fault(options);
  SendEnd* other = *w.transport->open_send({1, 0, 2}, kShape);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(other->send({1, 8}, kData), SendOutcome::kDone);
  EXPECT_EQ(w.send->send({1, 8}, kData), SendOutcome::kDone);
  EXPECT_EQ(w.send->send({1, 8}, kData), SendOutcome::kDone);
  w.puppet->incoming.assign(2, {{1, 8}, kData});
  Message message;
  EXPECT_TRUE(w.recv->lend(&message));
  w.recv->release();
  EXPECT_TRUE(w.transport->status().ok());
  EXPECT_FALSE(w.recv->lend(&message)) << "the fourth message of this link";
  EXPECT_EQ(w.transport->status().code(), Code::kRemoteError);
  EXPECT_NE(w.transport->status().message().find("rank 1"), std::string::npos);
  EXPECT_TRUE(w.transport->arm());
  EXPECT_EQ(other->send({1, 8}, kData), SendOutcome::kAgain);
  EXPECT_FALSE(w.transport->progress());
}

}  // namespace
}  // namespace unisono::testing
