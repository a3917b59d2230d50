#include "base/net/endpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "base/net/endpoint_address.h"

namespace unisono::net {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kPlenty = 60'000 * kMs;  // far beyond what anything here needs

int64_t after(int64_t ns) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec + ns;
}

struct Link {
  int32_t peer = -1;
  Fd fd;
  bool is_unix = false;
};

// What a handler accepted, waited for by the test.
class Inbox {
 public:
  Endpoint::Accepted handler() {
    return [this](int32_t peer, Fd fd, bool is_unix) {
      const std::lock_guard lock(mutex_);
      links_.push_back(Link{peer, std::move(fd), is_unix});
      changed_.notify_all();
    };
  }
  Link next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !links_.empty(); });
    Link link = std::move(links_.front());
    links_.pop_front();
    return link;
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return links_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Link> links_;
};

struct Dialled {
  Status status;
  Fd fd;
  bool is_unix = false;
};
std::future<Dialled> dial(Endpoint& from, int32_t to, Via via, int64_t patience_ns = kPlenty,
                          Purpose purpose = Purpose::kTcp) {
  auto promise = std::make_shared<std::promise<Dialled>>();
  from.dial(to, purpose, via, after(patience_ns), [promise](Result<Fd> fd, bool is_unix) {
    Dialled dialled;
    dialled.status = fd.status();
    dialled.is_unix = is_unix;
    if (fd.ok()) dialled.fd = std::move(*fd);
    promise->set_value(std::move(dialled));
  });
  return promise->get_future();
}

// Sends a byte each way: the two descriptors are the two ends of one stream.
void expect_joined(const Fd& a, const Fd& b) {
  for (const bool forth : {true, false}) {
    const int from = forth ? a.get() : b.get();
    const int to = forth ? b.get() : a.get();
    const char sent = forth ? 'f' : 'b';
    ASSERT_EQ(::send(from, &sent, 1, MSG_NOSIGNAL), 1);
    pollfd one{to, POLLIN, 0};
    ASSERT_EQ(::poll(&one, 1, -1), 1);
    char got = 0;
    ASSERT_EQ(::recv(to, &got, 1, 0), 1);
    EXPECT_EQ(got, sent);
  }
}

void wait_for_hang_up(int fd) {
  char byte = 0;
  pollfd one{fd, POLLIN, 0};
  ASSERT_EQ(::poll(&one, 1, -1), 1);
  EXPECT_LE(::recv(fd, &byte, 1, MSG_DONTWAIT), 0);
}

class EndpointTest : public testing::Test {
 protected:
  EndpointTest() : loop_(*shared_event_loop()) {}

  std::unique_ptr<Endpoint> make(int32_t rank, bool tcp = true, const std::string& interfaces = "",
                                 unsigned char secret = 1, uint64_t job = 5) {
    EndpointOptions options;
    options.rank = rank;
    options.secret.fill(secret);
    options.job = job;
    options.tcp = tcp;
    options.interfaces = interfaces;
    auto endpoint = Endpoint::create(*loop_, options);
    EXPECT_TRUE(endpoint.ok()) << endpoint.status().message();
    return std::move(*endpoint);
  }
  static EndpointAddress decoded(const Endpoint& endpoint) {
    const auto address = decode_address(endpoint.address());
    EXPECT_TRUE(address.ok());
    return *address;
  }
  static void introduce(Endpoint& a, int32_t rank_a, Endpoint& b, int32_t rank_b) {
    ASSERT_TRUE(a.set_peer(rank_b, b.address()).ok());
    ASSERT_TRUE(b.set_peer(rank_a, a.address()).ok());
  }

  std::shared_ptr<EventLoop> loop_;
};

TEST_F(EndpointTest, TwoRanksMeetOverAUnixSocketWithNoNetworkAtAll) {
  const auto a = make(0, false);
  const auto b = make(1, false);
  introduce(*a, 0, *b, 1);
  EXPECT_TRUE(decoded(*b).tcp.empty());
  EXPECT_TRUE(a->same_host_hint(1));
  EXPECT_FALSE(a->same_host_hint(2));
  Inbox inbox;
  b->on_accept(Purpose::kTcp, inbox.handler());
  for (const Via via : {Via::kUnixOnly, Via::kUnixThenTcp}) {
    const Dialled dialled = dial(*a, 1, via).get();
    ASSERT_TRUE(dialled.status.ok()) << dialled.status.message();
    EXPECT_TRUE(dialled.is_unix);
    const Link link = inbox.next();
    EXPECT_EQ(link.peer, 0);
    EXPECT_TRUE(link.is_unix);
    expect_joined(dialled.fd, link.fd);
  }
  EXPECT_EQ(dial(*a, 1, Via::kTcpOnly).get().status.code(), Code::kSystemError);
}

TEST_F(EndpointTest, TwoRanksMeetOverEachAddressThatIsPublished) {
  size_t families[2] = {0, 0};
  for (const char* interfaces : {"", "lo"}) {
    const auto a = make(0);
    const auto b = make(1, true, interfaces);
    Inbox inbox;
    b->on_accept(Purpose::kTcp, inbox.handler());
    EndpointAddress all = decoded(*b);
    for (const Address& one : decoded(*b).tcp) {
      all.tcp = {one};
      ASSERT_TRUE(a->set_peer(1, encode_address(all)).ok());
      const Dialled dialled = dial(*a, 1, Via::kTcpOnly).get();
      ASSERT_TRUE(dialled.status.ok()) << dialled.status.message();
      EXPECT_FALSE(dialled.is_unix);
      const Link link = inbox.next();
      expect_joined(dialled.fd, link.fd);
      families[one.storage.ss_family == AF_INET6 ? 1 : 0]++;
    }
  }
  EXPECT_GT(families[0], 0U);
  if (families[1] == 0) GTEST_LOG_(INFO) << "this machine has no IPv6";
}

TEST_F(EndpointTest, AllAddressesAreProbedAtOnceAndTheHandlerSeesOneLink) {
  const auto a = make(0);
  const auto b = make(1);
  introduce(*a, 0, *b, 1);
  EndpointAddress address = decoded(*b);
  // Documentation addresses, which nobody answers, and ports that refuse, come first.
  std::vector<Address> tcp = {*parse_address("203.0.113.1", 9), *parse_address("127.0.0.1", 1)};
  for (int i = 0; i < 4; i++) tcp.insert(tcp.end(), address.tcp.begin(), address.tcp.end());
  address.tcp = tcp;
  ASSERT_TRUE(a->set_peer(1, encode_address(address)).ok());
  Inbox inbox;
  b->on_accept(Purpose::kTcp, inbox.handler());
  std::vector<Dialled> dialled;
  for (int i = 0; i < 20; i++) {
    dialled.push_back(dial(*a, 1, Via::kTcpOnly).get());
    ASSERT_TRUE(dialled.back().status.ok()) << dialled.back().status.message();
    const Link link = inbox.next();
    expect_joined(dialled.back().fd, link.fd);
  }
  loop_->run_sync([] {});
  EXPECT_EQ(inbox.size(), 0U);
}

TEST_F(EndpointTest, AUnixSocketThatIsGoneGivesWayToTcp) {
  const auto a = make(0);
  const auto b = make(1);
  EndpointAddress address = decoded(*b);
  address.unix_token ^= 2;
  ASSERT_TRUE(a->set_peer(1, encode_address(address)).ok());
  Inbox inbox;
  b->on_accept(Purpose::kTcp, inbox.handler());
  const Dialled dialled = dial(*a, 1, Via::kUnixThenTcp).get();
  ASSERT_TRUE(dialled.status.ok());
  EXPECT_FALSE(dialled.is_unix);
}

TEST_F(EndpointTest, AnotherHostIsReachedByTcpOnlyAndLoopbackOnlyInOurNetwork) {
  const auto a = make(0);
  const auto b = make(1, true, "lo");
  Inbox inbox;
  b->on_accept(Purpose::kTcp, inbox.handler());
  EndpointAddress address = decoded(*b);
  address.identity.host ^= 1;  // as UNISONO_HOSTID does
  ASSERT_TRUE(a->set_peer(1, encode_address(address)).ok());
  EXPECT_FALSE(a->same_host_hint(1));
  const Dialled dialled = dial(*a, 1, Via::kUnixThenTcp).get();
  ASSERT_TRUE(dialled.status.ok());
  EXPECT_FALSE(dialled.is_unix);
  EXPECT_EQ(dial(*a, 1, Via::kUnixOnly).get().status.code(), Code::kSystemError);
  address.identity.network ^= 1;
  ASSERT_TRUE(a->set_peer(1, encode_address(address)).ok());
  const Status none = dial(*a, 1, Via::kUnixThenTcp).get().status;
  EXPECT_EQ(none.code(), Code::kSystemError);
  EXPECT_NE(none.message().find("rank 1"), std::string::npos);
}

TEST_F(EndpointTest, AnotherSecretOrJobIsRefused) {
  const auto b = make(1);
  Inbox inbox;
  b->on_accept(Purpose::kTcp, inbox.handler());
  const auto wrong_secret = make(0, true, "", 2);
  const auto wrong_job = make(0, true, "", 1, 6);
  for (Endpoint* a : {wrong_secret.get(), wrong_job.get()}) {
    ASSERT_TRUE(a->set_peer(1, b->address()).ok());
    for (const Via via : {Via::kUnixOnly, Via::kTcpOnly}) {
      const Status status = dial(*a, 1, via, 60 * kMs).get().status;
      EXPECT_EQ(status.code(), Code::kTimeout);
      EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
    }
  }
  EXPECT_EQ(inbox.size(), 0U);
}

TEST_F(EndpointTest, ADialToNobodyTimesOutNamingThePeerAndWhatWasTried) {
  const auto a = make(0);
  EndpointAddress dead;
  dead.identity = host_identity();
  dead.tcp = {*parse_address("127.0.0.1", 1)};
  ASSERT_TRUE(a->set_peer(42, encode_address(dead)).ok());
  const Status status = dial(*a, 42, Via::kTcpOnly, 30 * kMs).get().status;
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("rank 42"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("127.0.0.1:1"), std::string::npos) << status.message();
  const Status unknown = dial(*a, 43, Via::kTcpOnly).get().status;
  EXPECT_EQ(unknown.code(), Code::kInvalidUsage);
  EXPECT_NE(unknown.message().find("rank 43"), std::string::npos);
}

TEST_F(EndpointTest, ADialTriesAgainUntilThePeerIsThere) {
  const auto a = make(0, false);
  auto b = make(1, false);
  EndpointAddress address = decoded(*b);
  b.reset();
  ASSERT_TRUE(a->set_peer(1, encode_address(address)).ok());
  auto dialling = dial(*a, 1, Via::kUnixOnly);
  // A stranger has the name for a while and hangs up each time.
  auto listener = listen_on(unix_address(unix_name(address.unix_token)));
  ASSERT_TRUE(listener.ok());
  for (int i = 0; i < 3; i++) {
    pollfd one{listener->get(), POLLIN, 0};
    ASSERT_EQ(::poll(&one, 1, -1), 1);
    EXPECT_TRUE(accept_from(listener->get()).ok());
  }
  EXPECT_EQ(dialling.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  listener->reset();
  // Peers may also be told a new address; a dial under way keeps the old one, a new dial takes it.
  b = make(1, false);
  ASSERT_TRUE(a->set_peer(1, b->address()).ok());
  EXPECT_TRUE(dial(*a, 1, Via::kUnixOnly).get().status.ok());
}

TEST_F(EndpointTest, ADialEndsWhenThePeerHasGoneForGood) {
  const auto a = make(0);
  auto b = make(1);
  introduce(*a, 0, *b, 1);
  b.reset();
  const Status status = dial(*a, 1, Via::kUnixThenTcp).get().status;
  EXPECT_EQ(status.code(), Code::kRemoteError) << status.message();
  EXPECT_NE(status.message().find("rank 1 does not listen any more"), std::string::npos)
      << status.message();
}

// No descriptor can be opened until the end of the scope.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST_F(EndpointTest, OutOfDescriptorsForLongIsToldOnceAndEndsDialsWithTheReason) {
  const auto a = make(0, false);
  const auto b = make(1, false);
  introduce(*a, 0, *b, 1);
  std::promise<Status> told;
  a->on_shortage([&told](const Status& status) { told.set_value(status); });  // once, or it throws
  {
    const NoDescriptors none;
    const Status status = dial(*a, 1, Via::kUnixOnly).get().status;
    EXPECT_EQ(status.code(), Code::kSystemError);
    EXPECT_NE(status.message().find("Too many open files"), std::string::npos) << status.message();
    const Status later = dial(*a, 1, Via::kUnixOnly).get().status;
    EXPECT_EQ(later.message(), status.message());
    EXPECT_EQ(told.get_future().get().message(), status.message());
  }
  // Who asks afterwards hears of it at once.
  Status again;
  a->on_shortage([&again](const Status& status) { again = status; });
  EXPECT_EQ(again.code(), Code::kSystemError);
  a->on_shortage(nullptr);
  // The way for the news is open.
  Inbox inbox;
  b->on_accept(Purpose::kControl, inbox.handler());
  EXPECT_TRUE(dial(*a, 1, Via::kUnixOnly, kPlenty, Purpose::kControl).get().status.ok());
  EXPECT_EQ(inbox.next().peer, 0);
}

TEST_F(EndpointTest, AShortListenerTakesAControlLinkByTheDescriptorThatItKept) {
  const auto a = make(0, false);
  const auto b = make(1, false);
  introduce(*a, 0, *b, 1);
  Inbox inbox;
  b->on_accept(Purpose::kControl, inbox.handler());
  std::promise<void> told;
  b->on_shortage([&told](const Status&) { told.set_value(); });
  // One descriptor is left: the dialler's.
  std::vector<Fd> taken;
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{256, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  for (;;) {
    Fd one(::open("/", O_PATH | O_CLOEXEC));
    if (!one.valid()) break;
    taken.push_back(std::move(one));
  }
  ASSERT_FALSE(taken.empty());
  taken.pop_back();
  auto dialling = dial(*a, 1, Via::kUnixOnly, kPlenty, Purpose::kControl);
  told.get_future().wait();
  EXPECT_TRUE(dialling.get().status.ok());
  EXPECT_EQ(inbox.next().peer, 0);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(EndpointTest, GarbageAndSilenceDisturbNobody) {
  const unsigned seed = 20240611;
  GTEST_LOG_(INFO) << "seed " << seed;
  std::mt19937 random(seed);
  const auto a = make(0);
  const auto b = make(1, true, "lo");
  introduce(*a, 0, *b, 1);
  Inbox inbox;
  b->on_accept(Purpose::kTcp, inbox.handler());
  const EndpointAddress address = decoded(*b);
  const std::array<Address, 2> targets = {unix_address(unix_name(address.unix_token)),
                                          address.tcp.front()};
  std::vector<Fd> strangers;
  for (int i = 0; i < 600; i++) {  // more than may be half open
    auto stranger = start_connect(targets[static_cast<size_t>(i) % 2]);
    if (!stranger.ok()) continue;  // the backlog may be full for a moment
    if (i % 3 != 0) {
      std::array<unsigned char, 100> garbage{};
      for (unsigned char& byte : garbage) byte = static_cast<unsigned char>(random());
      (void)::send(stranger->get(), garbage.data(), random() % garbage.size(), MSG_NOSIGNAL);
    }
    if (i % 5 != 0) strangers.push_back(std::move(*stranger));
    if (i % 40 != 0) continue;
    const Dialled dialled = dial(*a, 1, i % 80 == 0 ? Via::kUnixOnly : Via::kTcpOnly).get();
    ASSERT_TRUE(dialled.status.ok()) << dialled.status.message();
    const Link link = inbox.next();
    expect_joined(dialled.fd, link.fd);
  }
  EXPECT_EQ(inbox.size(), 0U);
}

TEST_F(EndpointTest, LinksWaitForTheirHandlerUpToABound) {
  const auto a = make(0, false);
  const auto b = make(1, false);
  introduce(*a, 0, *b, 1);
  std::vector<std::future<Dialled>> dials;
  for (int i = 0; i < 70; i++) dials.push_back(dial(*a, 1, Via::kUnixOnly));
  auto other = dial(*a, 1, Via::kUnixOnly, kPlenty, Purpose::kControl);
  ASSERT_TRUE(other.get().status.ok());  // another purpose has places of its own
  std::vector<Dialled> ready;
  for (int i = 0; i < 64; i++) {
    // Whichever they are: 64 are parked, the rest knocks on.
    for (auto it = dials.begin();; it = std::next(it) == dials.end() ? dials.begin() : it + 1) {
      if (it->wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) continue;
      ready.push_back(it->get());
      dials.erase(it);
      break;
    }
    ASSERT_TRUE(ready.back().status.ok());
  }
  loop_->run_sync([] {});
  EXPECT_EQ(dials.size(), 6U);
  Inbox inbox;
  b->on_accept(Purpose::kTcp, inbox.handler());
  for (auto& one : dials) ready.push_back(one.get());
  for (const Dialled& one : ready) EXPECT_TRUE(one.status.ok());
  for (size_t i = 0; i < 70; i++) EXPECT_EQ(inbox.next().peer, 0);
  EXPECT_EQ(inbox.size(), 0U);
}

TEST_F(EndpointTest, AfterStopAcceptLinksOfThatPurposeAreRefused) {
  const auto a = make(0, false);
  const auto b = make(1, false);
  introduce(*a, 0, *b, 1);
  Inbox inbox;
  b->on_accept(Purpose::kTcp, inbox.handler());
  ASSERT_TRUE(dial(*a, 1, Via::kUnixOnly).get().status.ok());
  inbox.next();
  b->stop_accept(Purpose::kTcp);
  EXPECT_EQ(dial(*a, 1, Via::kUnixOnly, 20 * kMs).get().status.code(), Code::kTimeout);
  EXPECT_EQ(inbox.size(), 0U);
  b->on_accept(Purpose::kTcp, inbox.handler());
  ASSERT_TRUE(dial(*a, 1, Via::kUnixOnly).get().status.ok());
  inbox.next();
}

TEST_F(EndpointTest, TheEndAbortsPendingDialsBeforeItReturns) {
  auto a = make(0);
  EndpointAddress dead;
  dead.identity = host_identity();
  dead.tcp = {*parse_address("127.0.0.1", 1)};
  ASSERT_TRUE(a->set_peer(1, encode_address(dead)).ok());
  for (const bool on_loop : {false, true}) {
    if (a == nullptr) a = make(0);
    ASSERT_TRUE(a->set_peer(1, encode_address(dead)).ok());
    std::atomic<int> aborted{0};
    const auto count = [&](const Result<Fd>& fd, bool) {
      EXPECT_EQ(fd.status().code(), Code::kAborted);
      aborted++;
    };
    a->dial(1, Purpose::kTcp, Via::kTcpOnly, after(kPlenty), count);
    loop_->run_sync([] {});  // started
    const auto end = [&] {
      a->dial(1, Purpose::kTcp, Via::kTcpOnly, after(kPlenty), count);  // perhaps not yet
      a.reset();
      EXPECT_EQ(aborted, 2);
    };
    if (on_loop) {
      loop_->run_sync(end);
    } else {
      end();
    }
    loop_->run_sync([] {});
    EXPECT_EQ(aborted, 2);
  }
}

TEST_F(EndpointTest, ACallbackMayEndTheEndpoint) {
  auto a = make(0, false);
  auto b = make(1, false);
  introduce(*a, 0, *b, 1);
  std::promise<void> accepted;
  std::promise<void> dialled;
  b->on_accept(Purpose::kTcp, [&](int32_t, const Fd&, bool) {
    b.reset();
    accepted.set_value();
  });
  a->dial(1, Purpose::kTcp, Via::kUnixOnly, after(kPlenty), [&](const Result<Fd>& fd, bool) {
    EXPECT_TRUE(fd.ok());
    a.reset();
    dialled.set_value();
  });
  accepted.get_future().get();
  dialled.get_future().get();
  EXPECT_EQ(a, nullptr);
  EXPECT_EQ(b, nullptr);
}

TEST_F(EndpointTest, AForkedChildThatLivesOnDoesNotHideTheParentsDeath) {
  const auto b = make(1, false);
  Inbox inbox;
  b->on_accept(Purpose::kTcp, inbox.handler());
  const std::string address = b->address();
  std::array<int, 2> parent_may_die{};
  std::array<int, 2> child_may_die{};
  ASSERT_EQ(::pipe(parent_may_die.data()), 0);
  ASSERT_EQ(::pipe(child_may_die.data()), 0);
  const auto a = make(0, false);
  ASSERT_TRUE(a->set_peer(1, address).ok());
  Dialled dialled = dial(*a, 1, Via::kUnixOnly).get();
  ASSERT_TRUE(dialled.status.ok());
  const Link link = inbox.next();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::close(child_may_die[1]);
    const char ready = is_forked_child() ? 'y' : 'n';
    if (::write(parent_may_die[1], &ready, 1) != 1) ::_exit(1);
    char byte = 0;
    (void)!::read(child_may_die[0], &byte, 1);  // until the test lets go
    ::_exit(0);
  }
  ::close(child_may_die[0]);
  char ready = 0;
  ASSERT_EQ(::read(parent_may_die[0], &ready, 1), 1);
  EXPECT_EQ(ready, 'y');
  expect_joined(dialled.fd, link.fd);  // closed in the child, not shut down
  dialled.fd.reset();                  // as the kernel does for a killed parent
  wait_for_hang_up(link.fd.get());
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0);  // the child lives
  ::close(child_may_die[1]);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(parent_may_die[0]);
  ::close(parent_may_die[1]);
}

TEST_F(EndpointTest, ManyLivesLeaveNoDescriptors) {
  const auto count = [] {
    DIR* opened = ::opendir("/proc/self/fd");
    size_t entries = 0;
    while (opened != nullptr && ::readdir(opened) != nullptr) entries++;
    if (opened != nullptr) ::closedir(opened);
    return entries;
  };
  const size_t before = count();
  for (int i = 0; i < 200; i++) {
    const auto a = make(0);
    const auto b = make(1);
    introduce(*a, 0, *b, 1);
    const Dialled dialled = dial(*a, 1, i % 2 == 0 ? Via::kUnixOnly : Via::kTcpOnly).get();
    ASSERT_TRUE(dialled.status.ok());  // parked at b, which ends with it
  }
  EXPECT_EQ(count(), before);
}

TEST(EndpointAddressText, WhatWasNotEncodedIsRefused) {
  EndpointAddress address;
  address.identity = {1, 2};
  address.unix_token = 3;
  address.tcp = {*parse_address("10.0.0.1", 7), *parse_address("fd00::1", 8)};
  const std::string blob = encode_address(address);
  const auto back = decode_address(blob);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->identity, address.identity);
  EXPECT_EQ(back->unix_token, 3U);
  ASSERT_EQ(back->tcp.size(), 2U);
  EXPECT_EQ(back->tcp[0].text(), "10.0.0.1:7");
  EXPECT_EQ(back->tcp[1].text(), "[fd00::1]:8");
  for (size_t length = 0; length < blob.size(); length++) {
    EXPECT_FALSE(decode_address(std::string_view(blob).substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(decode_address(blob + "x").ok());
  address.tcp.assign(1000, *parse_address("fd00::1", 8));
  EXPECT_LE(encode_address(address).size(), kMaxAddressBytes);
}

}  // namespace
}  // namespace unisono::net
