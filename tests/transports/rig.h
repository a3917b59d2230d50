// Rig: the ranks of one transport as objects of one process, over real endpoints or a simulated
// world, connected and ready.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/env.h"
#include "base/net/endpoint.h"
#include "base/net/event_loop.h"
#include "transports/registry.h"

namespace unisono::testing {

// A transport by its registry name. `options`: the text after "name:". `wrap`: puts decorators
// around each rank's transport; null: none.
struct Setup {
  const char* transport;
  const char* options = "";
  std::unique_ptr<Transport> (*wrap)(std::unique_ptr<Transport> inner, Env& env,
                                     int rank) = nullptr;
};
// In failures and names of tests: words that are the same in every run, instead of addresses.
inline std::string to_string(const Setup& setup) {
  const std::string name = setup.transport;
  return *setup.options == '\0' ? name : name + ":" + setup.options;
}
inline void PrintTo(const Setup& setup, std::ostream* out) {
  *out << to_string(setup);
}
inline std::string name_of(const ::testing::TestParamInfo<Setup>& info) {
  std::string name = to_string(info.param);
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
}

// Memory of posted sends, which must stay until they have completed. Kept until the rig ends.
class KeptMemory {
 public:
  void keep(std::vector<std::byte> memory) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(memory));
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    kept_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::vector<std::byte>> kept_;
};
inline KeptMemory kept_memory;

class Rig {
 public:
  static constexpr int64_t kPatienceNs = 60'000'000'000;  // of a test that is about to fail

  Rig(const Setup& setup, int ranks, bool connected = true)
      : entry_(find_transport(setup.transport)) {
    EXPECT_NE(entry_, nullptr) << setup.transport;
    if (entry_->make_world != nullptr) {
      auto world = entry_->make_world(setup.options, ranks);
      EXPECT_TRUE(world.ok()) << world.status().message();
      world_ = *world;
      env_ = &world_->env();
    } else {
      auto loop = net::shared_event_loop();
      EXPECT_TRUE(loop.ok()) << loop.status().message();
      loop_ = *loop;
    }
    ranks_.resize(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) add(setup, rank);
    if (connected) connect();
  }
  ~Rig() {
    for (Rank& each : ranks_) {
      if (each.transport != nullptr) each.transport->close();
    }
    kept_memory.clear();
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  Env& env() { return *env_; }
  Transport& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)].transport; }
  Waiter& waiter(int rank) { return *ranks_[static_cast<size_t>(rank)].waiter; }
  void close(int rank) {
    ranks_[static_cast<size_t>(rank)].transport->close();
    ranks_[static_cast<size_t>(rank)].transport.reset();
  }

  // Tells every transport of the others, and waits until all know whom they reach.
  void connect() {
    for (Rank& each : ranks_) {
      if (each.endpoint == nullptr) continue;
      for (int peer = 0; peer < size(); ++peer) {
        const std::string address = ranks_[static_cast<size_t>(peer)].endpoint->address();
        const Status set = each.endpoint->set_peer(peer, address);
        EXPECT_TRUE(set.ok()) << set.message();
      }
    }
    std::vector<std::string> addresses;
    for (Rank& each : ranks_) addresses.push_back(each.transport->address());
    for (Rank& each : ranks_) {
      const Status connected = each.transport->connect(addresses);
      EXPECT_TRUE(connected.ok()) << connected.message();
    }
    EXPECT_TRUE(until([this] {
      for (Rank& each : ranks_) {
        if (!each.transport->ready()) return false;
      }
      return true;
    })) << "not ready";
  }

  // Drives all ranks from this thread, asleep whenever nothing moves, until `done` (which may lend
  // and send). False: out of patience, so a lost wake-up is a failure.
  [[nodiscard]] bool until(const std::function<bool()>& done) {
    std::vector<int> all;
    for (int rank = 0; rank < size(); ++rank) all.push_back(rank);
    return drive(all, done);
  }
  // The same of one rank, for that rank's thread.
  [[nodiscard]] bool until(int rank, const std::function<bool()>& done) {
    return drive({rank}, done);
  }
  // Runs body(rank) on a thread for each rank and joins them.
  void on_threads(const std::function<void(int rank)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([this, rank, &body] {
        env_->enter(rank);
        body(rank);
        env_->leave(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  struct Rank {
    std::unique_ptr<Waiter> waiter;
    std::unique_ptr<net::Endpoint> endpoint;
    std::unique_ptr<Transport> transport;  // last: it ends first
  };

  void add(const Setup& setup, int rank) {
    Rank& each = ranks_[static_cast<size_t>(rank)];
    each.waiter = env_->make_waiter();
    if (loop_ != nullptr) {
      net::EndpointOptions options;
      options.rank = rank;
      options.secret.fill(7);
      auto endpoint = net::Endpoint::create(*loop_, options);
      ASSERT_TRUE(endpoint.ok()) << endpoint.status().message();
      each.endpoint = std::move(*endpoint);
    }
    TransportContext context;
    context.env = env_;
    context.waiter = each.waiter.get();
    context.endpoint = each.endpoint.get();
    context.rank = rank;
    context.ranks = size();
    context.options = setup.options;
    context.world = world_;
    auto transport = entry_->create(context);
    ASSERT_TRUE(transport.ok()) << transport.status().message();
    each.transport = std::move(*transport);
    if (setup.wrap != nullptr) {
      each.transport = setup.wrap(std::move(each.transport), *env_, rank);
    }
  }

  bool drive(std::vector<int> driven, const std::function<bool()>& done) {
    std::erase_if(driven, [this](int rank) { return at(rank) == nullptr; });
    for (const int rank : driven) env_->enter(rank);
    const bool in_time = drive_entered(driven, done);
    for (const int rank : driven) env_->leave(rank);
    return in_time;
  }
  Transport* at(int rank) { return ranks_[static_cast<size_t>(rank)].transport.get(); }
  bool drive_entered(const std::vector<int>& driven, const std::function<bool()>& done) {
    const int64_t deadline_ns = env_->now_ns() + kPatienceNs;
    std::vector<Waiter*> waiters;
    for (const int rank : driven) waiters.push_back(&waiter(rank));
    int idle = 0;
    while (true) {
      bool moved = false;
      for (const int rank : driven) {
        if (at(rank) != nullptr) moved = at(rank)->progress() || moved;
      }
      if (done()) return true;
      if (env_->now_ns() > deadline_ns) return false;
      idle = moved ? 0 : idle + 1;
      if (moved || (idle < 200 && env_->relax(idle))) continue;  // sleeps are to be tested: early
      bool stay = false;
      for (const int rank : driven) {
        if (at(rank) != nullptr) stay = at(rank)->arm() || stay;
      }
      if (!stay) env_->wait(waiters, deadline_ns + 1);
      for (const int rank : driven) {
        if (at(rank) != nullptr) at(rank)->disarm();
      }
    }
  }

  const TransportEntry* entry_;
  std::shared_ptr<net::EventLoop> loop_;
  std::shared_ptr<World> world_;
  Env* env_ = &real_env();
  std::vector<Rank> ranks_;
};

// Contents of message `index` of a stream of messages: different in every message and position.
inline std::vector<std::byte> pattern(uint64_t index, size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<std::byte>((index * 131 + i * 7 + i / 251) & 0xff);
  }
  return out;
}
inline MessageHeader header_of(uint64_t index, size_t bytes) {
  return {index * 0x9e3779b97f4a7c15 + 1, static_cast<uint32_t>(bytes)};
}
inline SendOutcome send_pattern(SendEnd& end, uint64_t index, size_t bytes) {
  std::vector<std::byte> data = pattern(index, bytes);
  const SendOutcome outcome = end.send(header_of(index, bytes), data.data());
  if (outcome == SendOutcome::kPosted) kept_memory.keep(std::move(data));
  return outcome;
}
inline ::testing::AssertionResult is_pattern(const Message& message, uint64_t index, size_t bytes) {
  if (message.header.bytes != bytes) {
    return ::testing::AssertionFailure()
           << "message " << index << " has " << message.header.bytes << " bytes, not " << bytes;
  }
  if (message.header.fingerprint != header_of(index, bytes).fingerprint) {
    return ::testing::AssertionFailure() << "message " << index << " has another's fingerprint";
  }
  if (bytes > 0 && std::memcmp(message.data, pattern(index, bytes).data(), bytes) != 0) {
    return ::testing::AssertionFailure()
           << "message " << index << " of " << bytes << " bytes differs";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace unisono::testing
