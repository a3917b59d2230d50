// Meeting by URL, by environment and by a store: ranks as threads, each with an environment of its
// own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "base/bytes.h"
#include "base/env.h"
#include "comm/bootstrap/job_secret.h"
#include "comm/bootstrap/meet.h"
#include "comm/bootstrap/torch_store_client.h"

namespace unisono {
namespace {

using bootstrap::meet;
using JobKey = std::optional<net::Secret>;

int64_t in_seconds(int64_t seconds) {
  return real_env().now_ns() + seconds * 1'000'000'000;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

struct Outcome {
  Status status;
  std::vector<std::string> table;
  std::string how;
};

// What a communicator's start does: meet, then exchange.
Outcome run_rank(const std::string& url, int32_t ranks, int32_t rank, const Environment& env,
                 const JobKey& key, int64_t deadline_ns) {
  auto place = meet(url, ranks, rank, env, key, deadline_ns);
  if (!place.ok()) return {place.status(), {}, ""};
  auto table =
      exchange(place->id, place->ranks, place->rank, std::to_string(place->rank), deadline_ns);
  if (!table.ok()) return {table.status(), {}, place->how};
  return {ok_status(), *table, place->how};
}

std::vector<Outcome> run_ranks(int32_t ranks, const std::function<Outcome(int32_t)>& body) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { outcomes[static_cast<size_t>(rank)] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

void expect_all_met(const std::vector<Outcome>& outcomes) {
  std::vector<std::string> expected;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) expected.push_back(std::to_string(rank));
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(outcome.table, expected);
  }
}

// A port that the kernel has just given, free again.
int free_port() {
  auto fd = net::listen_on(*net::parse_address("127.0.0.1", 0));
  const std::string text = net::bound_address(fd->get())->text();
  return std::stoi(text.substr(text.rfind(':') + 1));
}

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    path_ = testing::TempDir() + "/unisono_meet_XXXXXX";
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~TemporaryDirectory() {
    unlink(file().c_str());
    EXPECT_EQ(rmdir(path_.c_str()), 0) << path_ << " is not empty";
  }
  std::string file() const { return path_ + "/meet"; }

 private:
  std::string path_;
};

JobKey key_of(const char* text) {
  return bootstrap::key_from_text(text);
}

// ---- file:// ----

TEST(MeetFileTest, AllMeetAndNothingIsLeft) {
  const TemporaryDirectory directory;
  for (int round = 0; round < 3; ++round) {
    expect_all_met(run_ranks(5, [&](int32_t rank) {
      return run_rank("file://" + directory.file(), 5, rank, {}, {}, in_seconds(60));
    }));
    EXPECT_NE(access(directory.file().c_str(), F_OK), 0);
  }
}

void write_file(const std::string& path, std::string_view text, mode_t mode) {
  std::ofstream(path, std::ios::binary) << text;
  ASSERT_EQ(chmod(path.c_str(), mode), 0);
}

TEST(MeetFileTest, AFileLeftByADeadJobMisleadsNobody) {
  const TemporaryDirectory directory;
  bootstrap::IdFields dead;
  dead.job = 5;
  dead.unix_number = 0xdeadbeef;  // nobody listens there
  const UniqueId id = bootstrap::encode_id(dead);
  write_file(directory.file(), {id.bytes.data(), id.bytes.size()}, 0600);
  std::vector<Outcome> outcomes(2);
  std::thread other(
      [&] { outcomes[1] = run_rank("file://" + directory.file(), 2, 1, {}, {}, in_seconds(60)); });
  // Whether rank 1 sees the old file first is up to the scheduler; both orders must work.
  std::this_thread::yield();
  outcomes[0] = run_rank("file://" + directory.file(), 2, 0, {}, {}, in_seconds(60));
  other.join();
  expect_all_met(outcomes);
}

TEST(MeetFileTest, AFileThatOthersMayReadIsRefused) {
  const TemporaryDirectory directory;
  write_file(directory.file(), "", 0644);
  for (const int32_t rank : {0, 1}) {
    const auto place = meet("file://" + directory.file(), 2, rank, {}, {}, in_seconds(60));
    ASSERT_FALSE(place.ok());
    EXPECT_EQ(place.status().code(), Code::kInvalidArgument);
    EXPECT_TRUE(contains(place.status().message(), "0600")) << place.status().message();
  }
}

TEST(MeetFileTest, SomebodysDocumentIsLeftAlone) {
  const TemporaryDirectory directory;
  write_file(directory.file(), "my thesis", 0600);
  EXPECT_EQ(meet("file://" + directory.file(), 2, 0, {}, {}, in_seconds(60)).status().code(),
            Code::kInvalidArgument);
  std::ifstream file(directory.file());
  std::string text;
  std::getline(file, text);
  EXPECT_EQ(text, "my thesis");
}

TEST(MeetFileTest, ASymbolicLinkIsRefused) {
  const TemporaryDirectory directory;
  ASSERT_EQ(symlink("/etc/hostname", directory.file().c_str()), 0);
  EXPECT_TRUE(
      contains(meet("file://" + directory.file(), 2, 1, {}, {}, in_seconds(60)).status().message(),
               "symbolic"));
}

TEST(MeetFileTest, AnAbsentRank0IsNamedAtTheDeadline) {
  const TemporaryDirectory directory;
  const auto place =
      meet("file://" + directory.file(), 2, 1, {}, {}, real_env().now_ns() + 30'000'000);
  EXPECT_EQ(place.status().code(), Code::kTimeout);
  EXPECT_TRUE(contains(place.status().message(), "rank 0"));
}

// ---- tcp:// and the job's secret ----

TEST(MeetTcpTest, AllMeetAgainAndAgainAtOnePort) {
  const std::string url = fmt::format("tcp://127.0.0.1:{}", free_port());
  // No barrier between the rounds: a fast rank must not fall into the previous round's meeting.
  std::vector<std::vector<Outcome>> rounds(5, std::vector<Outcome>(4));
  (void)run_ranks(4, [&](int32_t rank) {
    for (auto& round : rounds) {
      round[static_cast<size_t>(rank)] = run_rank(url, 4, rank, {}, {}, in_seconds(60));
    }
    return Outcome();
  });
  for (const auto& round : rounds) expect_all_met(round);
}

TEST(MeetTcpTest, AllMeetWithTheJobsSecret) {
  const std::string url = fmt::format("tcp://127.0.0.1:{}", free_port());
  expect_all_met(run_ranks(4, [&](int32_t rank) {
    return run_rank(url, 4, rank, {}, key_of("secret"), in_seconds(60));
  }));
}

// One rank of two with another secret: it must be told, by the name of the variable.
void expect_refused(const JobKey& rank_0, const JobKey& rank_1, const char* part) {
  const std::string url = fmt::format("tcp://127.0.0.1:{}", free_port());
  auto place = meet(url, 2, 0, {}, rank_0, in_seconds(60));
  ASSERT_TRUE(place.ok()) << place.status().message();
  const auto other = meet(url, 2, 1, {}, rank_1, in_seconds(60));
  bootstrap::withdraw_meeting(place->id);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(contains(other.status().message(), "UNISONO_JOB_SECRET"));
  EXPECT_TRUE(contains(other.status().message(), part)) << other.status().message();
}

TEST(MeetTcpTest, AnotherSecretIsRefused) {
  expect_refused(key_of("a"), key_of("b"), "another");
}
TEST(MeetTcpTest, AMissingSecretIsRefused) {
  expect_refused(key_of("a"), {}, "this rank has none");
}
TEST(MeetTcpTest, ASecretTooManyIsRefused) {
  expect_refused({}, key_of("a"), "rank 0 has no");
}

TEST(MeetTcpTest, TheHandedOutIdDoesNotHoldTheSecret) {
  const JobKey key = key_of("secret");
  bootstrap::ServeOptions options;
  options.job_key = key;
  auto id = bootstrap::serve_meeting(std::move(options));
  ASSERT_TRUE(id.ok());
  const std::string published = bootstrap::publish_id(*id, key);
  const auto contents = read_unique_id(*id);
  EXPECT_FALSE(contains(published, bootstrap::as_text(contents->secret)));
  const auto back = bootstrap::read_published_id(published, key);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->bytes, id->bytes);
  EXPECT_FALSE(bootstrap::read_published_id(published, {}).ok());
  bootstrap::withdraw_meeting(*id);
}

TEST(MeetTcpTest, AnotherJobAtTheSamePlaceIsNotTakenForOurs) {
  auto port = net::listen_on(*net::parse_address("127.0.0.1", 0));
  ASSERT_TRUE(port.ok());
  const net::Address place = *net::bound_address(port->get());
  port->reset();
  const auto id = bootstrap::meet_at_addresses({place}, 0, {}, in_seconds(60), 5);
  ASSERT_TRUE(id.ok()) << id.status().message();
  for (const uint64_t other : {uint64_t{0}, uint64_t{4}}) {
    const int64_t deadline_ns = real_env().now_ns() + 100'000'000;
    const auto wrong = bootstrap::meet_at_addresses({place}, 1, {}, deadline_ns, other);
    EXPECT_EQ(wrong.status().code(), Code::kTimeout);
    EXPECT_TRUE(contains(wrong.status().message(), "does not know it")) << wrong.status().message();
  }
  EXPECT_TRUE(bootstrap::meet_at_addresses({place}, 1, {}, in_seconds(60), 5).ok());
  bootstrap::withdraw_meeting(*id);
}

TEST(MeetTcpTest, ATakenPortIsNamed) {
  auto taken = net::listen_on(*net::parse_address("127.0.0.1", 0));
  ASSERT_TRUE(taken.ok());
  const std::string url = "tcp://" + net::bound_address(taken->get())->text();
  const auto place = meet(url, 2, 0, {}, {}, in_seconds(60));
  ASSERT_FALSE(place.ok());
  EXPECT_TRUE(contains(place.status().message(), "url 127.0.0.1")) << place.status().message();
}

// ---- Arguments ----

TEST(MeetUrlTest, BadArgumentsAreNamed) {
  struct Case {
    const char* url;
    int32_t ranks, rank;
    const char* part;
  };
  const Case cases[] = {
      {"http://x", 2, 0, "url"},
      {"tcp://host", 2, 0, "url"},
      {"tcp://host:0", 2, 0, "url"},
      {"tcp://host:99999", 2, 0, "url"},
      {"tcp://:5", 2, 0, "url"},
      {"file://relative", 2, 0, "url"},
      {"tcp://127.0.0.1:5", 0, 0, "ranks"},
      {"tcp://127.0.0.1:5", 2, 2, "rank"},
      {"tcp://127.0.0.1:5", -1, -1, "ranks"},
      {"env://", 2, 0, "MASTER_ADDR"},
  };
  for (const Case& one : cases) {
    const auto place = meet(one.url, one.ranks, one.rank, {}, {}, in_seconds(60));
    ASSERT_FALSE(place.ok()) << one.url;
    EXPECT_EQ(place.status().code(), Code::kInvalidArgument) << place.status().message();
    EXPECT_TRUE(contains(place.status().message(), one.part)) << place.status().message();
  }
}

TEST(MeetUrlTest, AMalformedVariableIsRefused) {
  Environment env;
  env.problem = "RANK: 'x' is not a number";
  const auto place = meet("env://", -1, -1, env, {}, in_seconds(60));
  EXPECT_TRUE(contains(place.status().message(), "RANK"));
}

// ---- env:// ----

Environment launched(int32_t ranks, int32_t rank) {
  Environment env;
  env.rank = rank;
  env.world_size = ranks;
  env.launcher = "env";
  return env;
}

TEST(MeetEnvTest, StartedByNobodyMeansAlone) {
  const auto place = meet("env://", -1, -1, {}, {}, in_seconds(60));
  ASSERT_TRUE(place.ok()) << place.status().message();
  EXPECT_EQ(place->ranks, 1);
  EXPECT_EQ(place->rank, 0);
  EXPECT_TRUE(read_unique_id(place->id).ok());
}

TEST(MeetEnvTest, ARankWithoutAWorldSizeIsAnError) {
  Environment env = launched(-1, 1);
  EXPECT_TRUE(
      contains(meet("env://", -1, -1, env, {}, in_seconds(60)).status().message(), "WORLD_SIZE"));
}

TEST(MeetEnvTest, MasterAddressAndPortLeadToRank0) {
  const int port = free_port();
  const auto outcomes = run_ranks(3, [&](int32_t rank) {
    Environment env = launched(3, rank);
    env.master_addr = "localhost";
    env.master_port = port;
    return run_rank("env://", -1, -1, env, {}, in_seconds(60));
  });
  expect_all_met(outcomes);
  EXPECT_TRUE(contains(outcomes[0].how, "MASTER_ADDR"));
}

TEST(MeetEnvTest, AMissingPortIsNamed) {
  Environment env = launched(2, 0);
  env.master_addr = "localhost";
  EXPECT_TRUE(
      contains(meet("", -1, -1, env, {}, in_seconds(60)).status().message(), "MASTER_PORT"));
}

TEST(MeetEnvTest, UniRunsUnixNameLeadsToRank0) {
  const std::string name = "unisono-test-" + std::to_string(std::random_device()());
  const auto outcomes = run_ranks(4, [&](int32_t rank) {
    Environment env = launched(4, rank);
    env.meeting = "unix:" + name;
    env.master_addr = "not.used.invalid";
    return run_rank("env://", -1, -1, env, key_of("by descriptor"), in_seconds(60));
  });
  expect_all_met(outcomes);
  EXPECT_TRUE(contains(outcomes[3].how, "uni-run"));
}

TEST(MeetEnvTest, MpirunOnOneHostMeetsByTheJobsName) {
  const std::string job = std::to_string(std::random_device()());
  expect_all_met(run_ranks(3, [&](int32_t rank) {
    Environment env = launched(3, rank);
    env.launcher = "openmpi";
    env.local_world_size = 3;
    env.job_id = job;
    return run_rank("env://", -1, -1, env, {}, in_seconds(60));
  }));
}

TEST(MeetEnvTest, MpirunOverHostsWithoutAMasterIsAnErrorAtOnce) {
  Environment env = launched(4, 0);
  env.launcher = "openmpi";
  env.local_world_size = 2;
  const auto place = meet("env://", -1, -1, env, {}, in_seconds(60));
  EXPECT_EQ(place.status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(contains(place.status().message(), "MASTER_ADDR"));
}

// ---- torchrun's agent store ----

// As much of a TCPStore as the protocol's SET, GET, ADD, CHECK and WAIT need.
class FakeTorchStore {
 public:
  FakeTorchStore() {
    listener_ = std::move(*net::listen_on(*net::parse_address("127.0.0.1", 0)));
    const std::string text = net::bound_address(listener_.get())->text();
    port_ = std::stoi(text.substr(text.rfind(':') + 1));
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~FakeTorchStore() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      changed_.notify_all();
    }
    acceptor_.join();
    for (std::thread& thread : servers_) thread.join();
  }
  int port() const { return port_; }
  std::map<std::string, std::string> values() {
    const std::lock_guard lock(mutex_);
    return values_;
  }

 private:
  bool stopped() {
    const std::lock_guard lock(mutex_);
    return stop_;
  }
  void accept_all() {
    while (!stopped()) {
      pollfd one{listener_.get(), POLLIN, 0};
      if (poll(&one, 1, 20) <= 0) continue;
      auto fd = net::accept_from(listener_.get());
      if (!fd.ok()) continue;
      servers_.emplace_back(
          [this, fd = std::make_shared<net::Fd>(std::move(*fd))] { serve(fd->get()); });
    }
  }
  bool read(int fd, void* bytes, size_t count) {
    auto* at = static_cast<char*>(bytes);
    while (count > 0) {
      pollfd one{fd, POLLIN, 0};
      if (stopped()) return false;
      if (poll(&one, 1, 20) <= 0) continue;
      const ssize_t got = recv(fd, at, count, 0);
      if (got <= 0) return false;
      at += got;
      count -= static_cast<size_t>(got);
    }
    return true;
  }
  bool read_text(int fd, std::string* text) {
    uint64_t length = 0;
    if (!read(fd, &length, sizeof(length)) || length > 10000) return false;
    text->resize(length);
    return read(fd, text->data(), length);
  }
  void serve(int fd) {
    uint8_t query = 0;
    uint32_t magic = 0;
    if (!read(fd, &query, 1) || query != 0 || !read(fd, &magic, 4) || magic != 0x3C85F7CE) return;
    std::string key, value;
    uint64_t count = 1;
    while (read(fd, &query, 1)) {
      if ((query == 5 || query == 6) && (!read(fd, &count, 8) || count != 1)) return;
      if (!read_text(fd, &key)) return;
      if (query == 1 && !read_text(fd, &value)) return;
      std::string answer;
      std::unique_lock lock(mutex_);
      if (query == 1) {
        values_[key] = value;
        changed_.notify_all();
        continue;
      } else if (query == 3) {
        ByteWriter writer;
        writer.put<uint64_t>(values_[key].size());
        writer.put_bytes(values_[key]);
        answer = writer.take();
      } else if (query == 5) {
        answer = values_.count(key) != 0 ? std::string(1, '\0') : std::string(1, '\1');
      } else if (query == 6) {
        changed_.wait(lock, [&] { return stop_ || values_.count(key) != 0; });
        answer = std::string(1, '\0');
      } else {
        return;
      }
      lock.unlock();
      (void)send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }

  net::Fd listener_;
  int port_ = 0;
  std::thread acceptor_;
  std::vector<std::thread> servers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::map<std::string, std::string> values_;
};

TEST(TorchStoreTest, ValuesAreSetAndWaitedFor) {
  FakeTorchStore server;
  auto writer = bootstrap::TorchStoreClient::connect("127.0.0.1", server.port(), in_seconds(60));
  auto reader = bootstrap::TorchStoreClient::connect("127.0.0.1", server.port(), in_seconds(60));
  ASSERT_TRUE(writer.ok() && reader.ok());
  const std::string value("a\0b", 3);
  std::thread later([&] { EXPECT_TRUE(writer->set("k", value, in_seconds(60)).ok()); });
  const auto got = reader->get("k", in_seconds(60));
  later.join();
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(*got, value);
  EXPECT_EQ(reader->get("never", real_env().now_ns() + 20'000'000).status().code(), Code::kTimeout);
}

TEST(MeetEnvTest, UnderTorchrunTheAgentsStoreIsUsedAsAClient) {
  FakeTorchStore server;
  // One meeting a process: this test plays rank 0 in the store's place and one meeting as rank 1.
  Environment env = launched(2, 0);
  env.launcher = "torchrun";
  env.use_agent_store = true;
  env.run_id = "run";
  env.restart_count = 3;
  env.master_addr = "127.0.0.1";
  env.master_port = server.port();
  const auto place = meet("env://", -1, -1, env, key_of("s"), in_seconds(60));
  ASSERT_TRUE(place.ok()) << place.status().message();
  EXPECT_TRUE(contains(place->how, "agent store"));
  // SET has no answer; a GET on another connection waits until it was worked off.
  auto store = bootstrap::TorchStoreClient::connect("127.0.0.1", server.port(), in_seconds(60));
  const auto published = store->get("unisono/run/3/0", in_seconds(60));
  ASSERT_TRUE(published.ok()) << published.status().message();
  ASSERT_EQ(server.values().begin()->first, "/unisono/run/3/0");
  const auto id = bootstrap::read_published_id(*published, key_of("s"));
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(id->bytes, place->id.bytes);
  bootstrap::withdraw_meeting(*id);
}

// ---- A framework's store ----

class MemoryStore {
 public:
  StoreCalls calls() {
    StoreCalls calls;
    calls.set = [this](const std::string& key, const std::string& value) {
      const std::lock_guard lock(mutex_);
      values_[key] = value;
      changed_.notify_all();
      return ok_status();
    };
    calls.get = [this](const std::string& key, int64_t timeout_ms) -> Result<std::string> {
      std::unique_lock lock(mutex_);
      const bool there = changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                           [&] { return values_.count(key) != 0; });
      if (!there) return error(Code::kTimeout, "no key '{}'", key);
      return values_[key];
    };
    return calls;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

TEST(MeetStoreTest, AllMeetThroughAStore) {
  MemoryStore store;
  expect_all_met(run_ranks(4, [&](int32_t rank) -> Outcome {
    const auto place = meet_by_store(store.calls(), "group", 4, rank, in_seconds(60));
    if (!place.ok()) return {place.status(), {}, ""};
    const auto table = exchange(place->id, 4, rank, std::to_string(rank), in_seconds(60));
    if (!table.ok()) return {table.status(), {}, ""};
    return {ok_status(), *table, place->how};
  }));
}

TEST(MeetStoreTest, AStoresFailureIsPassedOn) {
  MemoryStore store;
  const auto late = meet_by_store(store.calls(), "p", 2, 1, real_env().now_ns() + 10'000'000);
  EXPECT_EQ(late.status().code(), Code::kTimeout);
  StoreCalls broken = store.calls();
  broken.set = [](const std::string&, const std::string&) {
    return error(Code::kSystemError, "disk on fire");
  };
  const auto failed = meet_by_store(broken, "p", 2, 0, in_seconds(60));
  EXPECT_TRUE(contains(failed.status().message(), "disk on fire"));
}

TEST(MeetStoreTest, GarbageInTheStoreIsAnErrorNotAnId) {
  MemoryStore store;
  ASSERT_TRUE(store.calls().set("p/unisono/id", "garbage").ok());
  EXPECT_FALSE(meet_by_store(store.calls(), "p", 2, 1, in_seconds(60)).ok());
}

// ---- The job's secret ----

TEST(JobSecretTest, ADescriptorIsPreferredToAFileAndAFileToTheVariable) {
  const TemporaryDirectory directory;
  write_file(directory.file(), "from file\n", 0600);
  Environment env;
  EXPECT_FALSE(bootstrap::read_job_secret(env)->has_value());
  env.job_secret = "from variable";
  EXPECT_EQ(*bootstrap::read_job_secret(env), key_of("from variable"));
  env.job_secret_file = directory.file();
  EXPECT_EQ(*bootstrap::read_job_secret(env), key_of("from file"));
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
  ASSERT_EQ(write(pipe_fds[1], "from pipe", 9), 9);
  close(pipe_fds[1]);
  env.job_secret_fd = std::to_string(pipe_fds[0]);
  EXPECT_EQ(*bootstrap::read_job_secret(env), key_of("from pipe"));
  close(pipe_fds[0]);
}

TEST(JobSecretTest, AFileThatOthersMayReadIsRefused) {
  const TemporaryDirectory directory;
  write_file(directory.file(), "secret", 0640);
  Environment env;
  env.job_secret_file = directory.file();
  const auto secret = bootstrap::read_job_secret(env);
  ASSERT_FALSE(secret.ok());
  EXPECT_TRUE(contains(secret.status().message(), "UNISONO_JOB_SECRET_FILE"));
}

TEST(JobSecretTest, AnEmptyFileOrAClosedDescriptorIsNamed) {
  const TemporaryDirectory directory;
  write_file(directory.file(), "\n", 0600);
  Environment env;
  env.job_secret_file = directory.file();
  EXPECT_FALSE(bootstrap::read_job_secret(env).ok());
  env.job_secret_fd = "987654";
  EXPECT_TRUE(
      contains(bootstrap::read_job_secret(env).status().message(), "UNISONO_JOB_SECRET_FD"));
}

}  // namespace
}  // namespace unisono
