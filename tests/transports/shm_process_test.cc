// Shared memory between real processes: data, departures and deaths. The test's own process only
// passes addresses and words along; every rank is a child of it, and what must happen in order is
// ordered by pipes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "tests/transports/rig.h"
#include "transports/shm/shm_transport.h"

namespace unisono::testing {
namespace {

constexpr ChannelShape kShape{8192, 4};

// One end of a pair of pipes between a rank and the test.
struct Wire {
  int in = -1, out = -1;
  void say(char word) const { ASSERT_EQ(::write(out, &word, 1), 1); }
  // '\0' when the other end is gone.
  char hear() const {
    char word = 0;
    return ::read(in, &word, 1) == 1 ? word : '\0';
  }
  void say_text(const std::string& text) const {
    const uint32_t bytes = static_cast<uint32_t>(text.size());
    ASSERT_EQ(::write(out, &bytes, sizeof bytes), static_cast<ssize_t>(sizeof bytes));
    ASSERT_EQ(::write(out, text.data(), bytes), static_cast<ssize_t>(bytes));
  }
  std::string hear_text() const {
    uint32_t bytes = 0;
    if (::read(in, &bytes, sizeof bytes) != static_cast<ssize_t>(sizeof bytes)) return "";
    std::string text(bytes, '\0');
    for (size_t at = 0; at < bytes;) {
      const ssize_t got = ::read(in, text.data() + at, bytes - at);
      if (got <= 0) return "";
      at += static_cast<size_t>(got);
    }
    return text;
  }
};

// A rank in its own process.
class ProcessRank {
 public:
  ProcessRank(int rank, int ranks, const Wire& wire) : wire_(wire) {
    loop_ = *net::shared_event_loop();
    net::EndpointOptions options;
    options.rank = rank;
    options.secret.fill(9);
    options.tcp = false;
    endpoint_ = std::move(*net::Endpoint::create(*loop_, options));
    waiter_ = real_env().make_waiter();
    TransportContext context;
    context.env = &real_env();
    context.waiter = waiter_.get();
    context.endpoint = endpoint_.get();
    context.rank = rank;
    context.ranks = ranks;
    transport_ = std::move(*make_shm_transport(context));
    wire_.say_text(endpoint_->address());
    for (int peer = 0; peer < ranks; ++peer) {
      if (!endpoint_->set_peer(peer, wire_.hear_text()).ok()) ::_exit(90);
    }
    const std::vector<std::string> addresses(static_cast<size_t>(ranks), transport_->address());
    if (!transport_->connect(addresses).ok()) ::_exit(91);
    if (!until([this] { return transport_->ready(); })) ::_exit(92);
  }
  ~ProcessRank() {
    if (transport_ != nullptr) transport_->close();
  }
  Transport& transport() { return *transport_; }
  const Wire& wire() const { return wire_; }
  bool until(const std::function<bool()>& done) {
    const int64_t deadline_ns = real_env().now_ns() + Rig::kPatienceNs;
    Waiter* const list[] = {waiter_.get()};
    while (!done()) {
      if (real_env().now_ns() > deadline_ns) return false;
      transport_->progress();
      if (!transport_->arm()) real_env().wait(list, deadline_ns + 1);
      transport_->disarm();
    }
    return true;
  }

 private:
  const Wire wire_;
  std::shared_ptr<net::EventLoop> loop_;
  std::unique_ptr<net::Endpoint> endpoint_;
  std::unique_ptr<Waiter> waiter_;
  std::unique_ptr<Transport> transport_;
};

using Body = std::function<int(int rank, ProcessRank& self)>;

class ShmProcesses : public ::testing::Test {
 protected:
  void start(int ranks, const Body& body) {
    for (int rank = 0; rank < ranks; ++rank) {
      int down[2], up[2];
      ASSERT_EQ(::pipe2(down, O_CLOEXEC), 0);
      ASSERT_EQ(::pipe2(up, O_CLOEXEC), 0);
      const pid_t pid = ::fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) {
        // Ends of earlier ranks' pipes would keep them from seeing the test go.
        for (const Wire& wire : wires_) close_wire(wire);
        ::close(down[1]);
        ::close(up[0]);
        ::alarm(120);
        int code = 0;
        {
          ProcessRank self(rank, ranks, Wire{down[0], up[1]});
          code = body(rank, self);
        }
        ::_exit(HasFailure() ? 80 : code);
      }
      ::close(down[0]);
      ::close(up[1]);
      pids_.push_back(pid);
      wires_.push_back({up[0], down[1]});
    }
    std::vector<std::string> addresses;
    for (const Wire& wire : wires_) addresses.push_back(wire.hear_text());
    for (const Wire& wire : wires_) {
      for (const std::string& address : addresses) wire.say_text(address);
    }
  }
  const Wire& wire(int rank) { return wires_[static_cast<size_t>(rank)]; }
  void kill_rank(int rank) {
    ::kill(pids_[static_cast<size_t>(rank)], SIGKILL);
    EXPECT_EQ(end_of(rank), -SIGKILL);
  }
  // Its exit code, or minus the signal.
  int end_of(int rank) {
    pid_t& pid = pids_[static_cast<size_t>(rank)];
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void TearDown() override {
    for (const pid_t pid : pids_) {
      if (pid <= 0) continue;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    for (const Wire& wire : wires_) close_wire(wire);
  }
  static void close_wire(const Wire& wire) {
    ::close(wire.in);
    ::close(wire.out);
  }

 private:
  std::vector<pid_t> pids_;
  std::vector<Wire> wires_;
};

// What 0 says when it has seen rank 1 die: 'd' if the status names the rank.
char await_death(ProcessRank& self) {
  if (!self.until([&] { return !self.transport().status().ok(); })) return 't';
  const Status status = self.transport().status();
  const bool named =
      status.code() == Code::kRemoteError && status.message().find("rank 1") != std::string::npos;
  return named && !self.transport().peer_left(1) ? 'd' : 'n';
}

TEST_F(ShmProcesses, RanksInProcessesOfTheirOwnExchangeMessagesAndLeaveInOrder) {
  constexpr int kRanks = 3;
  start(kRanks, [](int rank, ProcessRank& self) {
    Transport& transport = self.transport();
    for (int peer = 0; peer < kRanks; ++peer) {
      if (transport.reaches(peer) != (peer != rank)) return 1;
    }
    SendEnd* all = *transport.open_send({0, rank, kEveryone}, kShape);
    for (uint64_t i = 0; i < 300; ++i) {
      if (!self.until([&] { return send_pattern(*all, i, i * 20) != SendOutcome::kAgain; }))
        return 2;
      for (int peer = 0; peer < kRanks; ++peer) {
        if (peer == rank) continue;
        RecvEnd* recv = *transport.open_recv({0, peer, kEveryone}, kShape);
        Message message;
        if (!self.until([&] { return recv->lend(&message); })) return 3;
        if (!is_pattern(message, i, i * 20)) return 4;
        recv->release();
      }
    }
    if (rank == 0) {  // leaves last: the others' departures are no failure
      const bool left = self.until([&] {
        return (transport.peer_left(1) && transport.peer_left(2)) || !transport.status().ok();
      });
      return left && transport.status().ok() ? 0 : 5;
    }
    return 0;
  });
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(end_of(rank), 0) << "rank " << rank;
}

TEST_F(ShmProcesses, AReferenceIsSeenInAnotherProcess) {
  start(2, [](int rank, ProcessRank& self) {
    Transport& transport = self.transport();
    const ChannelShape shape{65536, 2};
    if (rank == 1) {
      RecvEnd* recv = *transport.open_recv({0, 0, 1}, shape);
      for (uint64_t i = 0; i < 20; ++i) {
        Message message;
        if (!self.until([&] { return recv->lend(&message); })) return 1;
        if (!is_pattern(message, i, 40000)) return 2;
        recv->release();
      }
      return 0;
    }
    const size_t bytes = 1 << 20;
    const int fd = ::memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (::ftruncate(fd, bytes) != 0) return 3;
    auto* memory =
        static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    SendEnd* send = *transport.open_send({0, 0, 1}, shape);
    for (uint64_t i = 0; i < 20; ++i) {
      // A region of its own each time, some of them not at a page's beginning.
      const size_t begin = i * 1024;
      const uint64_t registration =
          *transport.register_memory({memory + begin, bytes - begin, fd, begin});
      std::byte* from = memory + begin + 512;
      std::memcpy(from, pattern(i, 40000).data(), 40000);
      if (!self.until([&] {
            return send->send_reference(header_of(i, 40000), from, registration) !=
                   SendOutcome::kAgain;
          })) {
        return 4;
      }
      if (!self.until([&] { return send->completed() == send->accepted(); })) return 5;
      transport.deregister_memory(registration);
    }
    return 0;
  });
  EXPECT_EQ(end_of(0), 0);
  EXPECT_EQ(end_of(1), 0);
}

TEST_F(ShmProcesses, AKilledPeerIsNamedByTheStatus) {
  start(2, [](int rank, ProcessRank& self) {
    self.wire().say('r');
    if (rank == 1) return static_cast<int>(self.wire().hear());  // waits to be killed
    self.wire().say(await_death(self));
    return 0;
  });
  EXPECT_EQ(wire(0).hear(), 'r');
  EXPECT_EQ(wire(1).hear(), 'r');
  kill_rank(1);
  EXPECT_EQ(wire(0).hear(), 'd');
  EXPECT_EQ(end_of(0), 0);
}

TEST_F(ShmProcesses, MessagesSentBeforeADeathCanStillBeRead) {
  start(2, [](int rank, ProcessRank& self) {
    if (rank == 1) {
      SendEnd* send = *self.transport().open_send({0, 1, 0}, kShape);
      for (uint64_t i = 0; i < 4; ++i) send_pattern(*send, i, 5000);
      self.wire().say('r');
      return static_cast<int>(self.wire().hear());
    }
    const char seen = await_death(self);
    RecvEnd* recv = *self.transport().open_recv({0, 1, 0}, kShape);
    for (uint64_t i = 0; i < 4; ++i) {
      Message message;
      if (!recv->lend(&message) || !is_pattern(message, i, 5000)) return 1;
      recv->release();
    }
    return seen == 'd' ? 0 : 2;
  });
  EXPECT_EQ(wire(1).hear(), 'r');
  kill_rank(1);
  EXPECT_EQ(end_of(0), 0);
}

TEST_F(ShmProcesses, ADeathIsSeenThoughAForkedChildOfTheDeadLives) {
  int poke[2], answer[2];  // to and from the grandchild
  ASSERT_EQ(::pipe2(poke, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(answer, O_CLOEXEC), 0);
  start(2, [&](int rank, ProcessRank& self) {
    ::close(poke[1]);
    ::close(answer[0]);
    if (rank == 1) {
      if (::fork() == 0) {
        ::alarm(120);
        char word = 0;
        while (::read(poke[0], &word, 1) == 1) {
          if (::write(answer[1], &word, 1) != 1) break;
        }
        ::_exit(0);
      }
      self.wire().say('r');
      return static_cast<int>(self.wire().hear());
    }
    self.wire().say('r');
    self.wire().say(await_death(self));
    return 0;
  });
  ::close(poke[0]);
  ::close(answer[1]);
  const Wire grandchild{answer[0], poke[1]};
  EXPECT_EQ(wire(0).hear(), 'r');
  EXPECT_EQ(wire(1).hear(), 'r');
  grandchild.say('a');
  EXPECT_EQ(grandchild.hear(), 'a');
  kill_rank(1);
  EXPECT_EQ(wire(0).hear(), 'd');
  grandchild.say('b');
  EXPECT_EQ(grandchild.hear(), 'b') << "the grandchild was to outlive its parent";
  ::close(poke[1]);
  EXPECT_EQ(grandchild.hear(), '\0');
  ::close(answer[0]);
  EXPECT_EQ(end_of(0), 0);
}

}  // namespace
}  // namespace unisono::testing
