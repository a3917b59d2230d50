// PMI-1 as its client sees it, and a process manager that misbehaves.
#include "comm/bootstrap/pmi1_client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <thread>

#include "base/env.h"
#include "base/net/socket.h"

namespace unisono::bootstrap {
namespace {

int64_t soon() {
  return real_env().now_ns() + 60'000'000'000;
}

// Answers each line that it reads by what `answers` has for its first word.
class Manager {
 public:
  explicit Manager(std::map<std::string, std::string> answers) : answers_(std::move(answers)) {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    client_ = net::Fd(fds[0]);
    ours_ = net::Fd(fds[1]);
    thread_ = std::thread([this] { serve(); });
  }
  ~Manager() {
    client_.reset();
    thread_.join();
  }
  int fd() const { return client_.get(); }
  std::string heard;  // read it after stop()
  void stop() {
    (void)shutdown(client_.get(), SHUT_WR);
    thread_.join();
    thread_ = std::thread([] {});
  }

 private:
  void serve() {
    std::string text;
    char buffer[512];
    for (ssize_t got; (got = read(ours_.get(), buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
      for (size_t end; (end = text.find('\n')) != std::string::npos;) {
        const std::string line = text.substr(0, end);
        text.erase(0, end + 1);
        heard += line + "\n";
        const auto found = answers_.find(line.substr(0, line.find(' ')));
        if (found == answers_.end()) {
          (void)shutdown(ours_.get(), SHUT_RDWR);
          return;
        }
        (void)!write(ours_.get(), found->second.data(), found->second.size());
      }
    }
  }

  const std::map<std::string, std::string> answers_;
  net::Fd client_, ours_;
  std::thread thread_;
};

const std::map<std::string, std::string> kGood = {
    {"cmd=init", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"},
    {"cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"},
    {"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1_0\n"},
    {"cmd=put", "cmd=put_result rc=0 msg=success\n"},
    {"cmd=barrier_in", "cmd=barrier_out\n"},
    {"cmd=get", "cmd=get_result rc=0 msg=success value=abc\n"},
    {"cmd=finalize", "cmd=finalize_ack\n"},
};

TEST(Pmi1ClientTest, ValuesArePutAndGotAndTheEndIsSaid) {
  Manager manager(kGood);
  auto client = Pmi1Client::start(manager.fd(), soon());
  ASSERT_TRUE(client.ok()) << client.status().message();
  EXPECT_TRUE(client->put("key", "00ff", soon()).ok());
  EXPECT_TRUE(client->barrier(soon()).ok());
  const auto value = client->get("key", soon());
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value, "abc");
  client->finish();
  manager.stop();
  EXPECT_EQ(manager.heard,
            "cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=get_my_kvsname\n"
            "cmd=put kvsname=kvs_1_0 key=key value=00ff\ncmd=barrier_in\n"
            "cmd=get kvsname=kvs_1_0 key=key\ncmd=finalize\n");
}

TEST(Pmi1ClientTest, AValueBeyondTheManagersLimitIsRefusedHere) {
  Manager manager(kGood);
  auto client = Pmi1Client::start(manager.fd(), soon());
  ASSERT_TRUE(client.ok());
  EXPECT_FALSE(client->put("key", std::string(1024, 'x'), soon()).ok());
}

TEST(Pmi1ClientTest, WhateverTheManagerDoesWronglyIsAnErrorInWords) {
  const std::pair<std::string, std::string> cases[] = {
      {"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n", "answered"},
      {"cmd=nonsense\n", "answered"},
      {"\n", "answered"},
      {std::string(100'000, 'x'), "has no end"},
  };
  for (const auto& [answer, words] : cases) {
    auto answers = kGood;
    answers["cmd=init"] = answer;
    Manager manager(answers);
    const auto client = Pmi1Client::start(manager.fd(), soon());
    ASSERT_FALSE(client.ok());
    EXPECT_NE(client.status().message().find(words), std::string::npos)
        << client.status().message().substr(0, 200);
  }
}

TEST(Pmi1ClientTest, AManagerThatEndsIsAnErrorAtOnceAndASilentOneAtTheDeadline) {
  Manager ends({});
  EXPECT_EQ(Pmi1Client::start(ends.fd(), soon()).status().code(), Code::kRemoteError);
  auto answers = kGood;
  answers["cmd=init"] = "";
  Manager silent(answers);
  const auto client = Pmi1Client::start(silent.fd(), real_env().now_ns() + 20'000'000);
  EXPECT_EQ(client.status().code(), Code::kTimeout);
}

}  // namespace
}  // namespace unisono::bootstrap
