// Several ranks of one control tree in one process, over real sockets.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/env.h"
#include "base/net/endpoint.h"
#include "base/net/event_loop.h"
#include "comm/control/control.h"

namespace unisono {

inline int64_t in_seconds(int64_t seconds) {
  return real_env().now_ns() + seconds * 1'000'000'000;
}

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// One rank: what a communicator holds. Members are destroyed in the order that a communicator must
// keep.
struct ControlRank {
  std::unique_ptr<net::Endpoint> endpoint;
  std::unique_ptr<Control> control;
  std::unique_ptr<Waiter> waiter = real_env().make_waiter();
  std::mutex mutex;
  std::map<uint64_t, CallRecord> records;
  std::atomic<int> failures{0};

  void record(const CallRecord& call) {
    const std::lock_guard lock(mutex);
    records[call.sequence] = call;
  }
  // Sleeps until `done`; false after a minute, which only a defect can take.
  bool wait_until(const std::function<bool()>& done) {
    const int64_t give_up_ns = in_seconds(60);
    while (!done()) {
      if (real_env().now_ns() > give_up_ns) return false;
      Waiter* const mine = waiter.get();
      real_env().wait(std::span<Waiter* const>(&mine, 1), real_env().now_ns() + 10'000'000);
    }
    return true;
  }
  bool wait_failed() {
    return wait_until([&] { return control->failed(); });
  }
};

class ControlTree {
 public:
  explicit ControlTree(int32_t ranks) : ranks_(ranks) {
    auto loop = net::shared_event_loop();
    EXPECT_TRUE(loop.ok());
    loop_ = *loop;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      auto one = std::make_unique<ControlRank>();
      net::EndpointOptions options;
      options.rank = rank;
      options.secret.fill(9);
      options.job = 77;
      options.tcp = false;  // the unix side is enough here; tests/base covers both
      auto endpoint = net::Endpoint::create(*loop_, options);
      EXPECT_TRUE(endpoint.ok()) << endpoint.status().message();
      one->endpoint = std::move(*endpoint);
      all_.push_back(std::move(one));
    }
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([this, rank] { open(rank); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  ~ControlTree() {
    // Together, as ranks do, or each would wait for the others' farewells.
    std::vector<std::thread> threads;
    for (auto& one : all_) {
      threads.emplace_back([&one] {
        if (one->control) one->control->close();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (auto& one : all_) one->control.reset();
    all_.clear();
  }
  ControlRank& operator[](int32_t rank) { return *all_[static_cast<size_t>(rank)]; }
  int32_t size() const { return ranks_; }
  net::EventLoop& loop() { return *loop_; }

 private:
  void open(int32_t rank) {
    ControlRank& one = (*this)[rank];
    for (int32_t peer = 0; peer < ranks_; ++peer) {
      EXPECT_TRUE(one.endpoint->set_peer(peer, (*this)[peer].endpoint->address()).ok());
    }
    ControlOptions options;
    options.rank = rank;
    options.ranks = ranks_;
    options.env = &real_env();
    for (int32_t peer = 0; peer < ranks_; ++peer)
      options.hosts.push_back("h" + std::to_string(peer));
    options.recorder = [&one](uint64_t sequence) -> std::optional<CallRecord> {
      const std::lock_guard lock(one.mutex);
      const auto found = one.records.find(sequence);
      if (found == one.records.end()) return std::nullopt;
      return found->second;
    };
    options.latest = [&one]() -> std::optional<CallRecord> {
      const std::lock_guard lock(one.mutex);
      if (one.records.empty()) return std::nullopt;
      return one.records.rbegin()->second;
    };
    options.left = [&one] { one.waiter->notify(); };
    options.failed = [&one] {
      one.failures.fetch_add(1);
      one.waiter->notify();
    };
    auto control =
        Control::create(make_socket_links(*one.endpoint, rank), std::move(options), in_seconds(60));
    ASSERT_TRUE(control.ok()) << control.status().message();
    one.control = std::move(*control);
  }

  int32_t ranks_;
  std::shared_ptr<net::EventLoop> loop_;
  std::vector<std::unique_ptr<ControlRank>> all_;
};

inline CallRecord call(uint64_t sequence, uint64_t fingerprint, uint64_t count) {
  CallRecord record;
  record.sequence = sequence;
  record.fingerprint = fingerprint;
  record.count = count;
  record.collective = Collective::kAllReduce;
  record.type = DataType::kFloat32;
  record.op = RedOp::kSum;
  memcpy(record.algorithm, "ring", 5);
  return record;
}

}  // namespace unisono
