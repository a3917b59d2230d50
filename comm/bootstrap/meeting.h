// Meeting: who has registered under one id, without sockets. The server feeds it and sends what it
// answers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/net/endpoint.h"
#include "base/status.h"

namespace unisono::bootstrap {

// Numbers in words, bounded: "1, 4, 7 and 12 more".
std::string list_ranks(const std::vector<int32_t>& ranks, size_t total);

class Meeting {
 public:
  static constexpr size_t kMaxTableBytes = (size_t{1} << 30) - (size_t{1} << 20);

  // One client's request, already bounded. An error fails the meeting: every rank is to be told
  // failure().
  Status enter(int32_t ranks, int32_t rank, std::string payload);
  // A registered rank went away before all had come.
  void leave(int32_t rank, std::string_view why);

  bool complete() const { return table_ != nullptr; }
  bool failed() const { return !failure_.ok(); }
  const Status& failure() const { return failure_; }
  // The frame that answers everybody; complete() only.
  std::shared_ptr<const std::string> table() const { return table_; }
  std::string missing() const;  // "2, 5", or empty while the number of ranks is not known

 private:
  void build_table();

  int32_t ranks_ = -1, first_rank_ = -1;
  size_t bytes_ = 0;
  std::map<int32_t, std::string> payloads_;
  Status failure_;
  std::shared_ptr<const std::string> table_;
};

}  // namespace unisono::bootstrap
