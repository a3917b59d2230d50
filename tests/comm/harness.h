// Ranks as threads through the public C API, and small helpers for tests of it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cctype>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/sample.h"
#include "unisono/unisono.h"

namespace unisono::testing {

// In rank threads ASSERT cannot leave the rank's function, and EXPECT is thread-safe: report, with
// the library's words.
#define UNI_OK(expression)                                                                \
  do {                                                                                    \
    const uniResult_t uni_result = (expression);                                          \
    EXPECT_EQ(uni_result, uniSuccess) << #expression << ": " << uniGetLastError(nullptr); \
  } while (0)

// Why this machine or build cannot use one of a list of transports ("ucx:tls=tcp"); empty: it can.
inline std::string why_not(const std::string& transports) {
  const std::string name = transports.substr(0, transports.find_first_of(":,"));
  uniTransportInfo_t info{};
  info.size = sizeof info;
  for (int index = 0; uniTransportQuery(index, &info) == uniSuccess; index++) {
    if (name == info.name) return info.available != 0 ? "" : info.detail;
  }
  return "no transport " + name;
}
#define SKIP_WITHOUT(transport) \
  if (const std::string why = why_not(transport); !why.empty()) GTEST_SKIP() << why

// UCX 1.13 ends the process by an assertion of its own (ucp_request_send_state_ff) where a rank
// ends while UCX still makes connections by sockets: docs/transports.md. Later ones do not.
inline std::string why_not_without_peers(const std::string& transports) {
  const std::string why = why_not(transports);
  if (!why.empty() || transports.find("ucx:tls=tcp") == std::string::npos) return why;
  uniTransportInfo_t info{};
  info.size = sizeof info;
  for (int index = 0; uniTransportQuery(index, &info) == uniSuccess; index++) {
    const std::string detail = info.detail;
    if (std::string(info.name) == "ucx" && detail.find("UCX 1.13.") == 0)
      return "aborts: " + detail;
  }
  return "";
}
#define SKIP_WITHOUT_PEERS(transport) \
  if (const std::string why = why_not_without_peers(transport); !why.empty()) GTEST_SKIP() << why

// A transport's name and options as a part of a test's name.
inline std::string word_of(std::string transport) {
  for (char& letter : transport) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return transport;
}

struct WorldSetup {
  std::string transports = "shm";
  std::string algorithm;
  bool reproducible = false;
  int64_t timeout_ms = 60'000;
};

// `ranks` communicators in this process; destroyed at the end of scope.
class Ranks {
 public:
  Ranks(int ranks, const WorldSetup& setup) : comms_(static_cast<size_t>(ranks)) {
    uniConfig_t config = UNI_CONFIG_INITIALIZER;
    config.transports = setup.transports.c_str();
    if (!setup.algorithm.empty()) config.algorithm = setup.algorithm.c_str();
    config.reproducible = setup.reproducible ? 1 : 0;
    config.timeout_ms = setup.timeout_ms;
    UNI_OK(uniCommInitAll(comms_.data(), ranks, &config));
  }
  ~Ranks() {
    for (const uniComm_t comm : comms_) UNI_OK(uniCommDestroy(comm));
  }
  Ranks(const Ranks&) = delete;
  bool ok() const { return comms_.front() != nullptr; }
  int count() const { return static_cast<int>(comms_.size()); }
  uniComm_t operator[](int rank) const { return comms_[static_cast<size_t>(rank)]; }
  // Takes a communicator out of the destructor's hands.
  uniComm_t take(int rank) { return std::exchange(comms_[static_cast<size_t>(rank)], nullptr); }

  // fn(rank, comm) on one thread a rank; returns when all have ended.
  void run(const std::function<void(int, uniComm_t)>& fn) const {
    std::vector<std::thread> threads;
    for (int r = 0; r < count(); r++) threads.emplace_back([&, r] { fn(r, (*this)[r]); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<uniComm_t> comms_;
};

}  // namespace unisono::testing
