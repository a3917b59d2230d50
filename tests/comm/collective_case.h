// One collective call as a test case: fills buffers (misaligned by an element), calls, compares
// with the reference.
#pragma once

#include <string>
#include <vector>

#include "tests/comm/harness.h"
#include "tests/comm/reference.h"

namespace unisono::testing {

enum class Kind {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier
};
inline constexpr int kKinds = 9;
inline const char* kind_name(Kind kind) {
  static const char* names[kKinds] = {"all_reduce", "reduce",         "broadcast",
                                      "all_gather", "reduce_scatter", "gather",
                                      "scatter",    "all_to_all",     "barrier"};
  return names[static_cast<int>(kind)];
}
inline bool reduces(Kind k) {
  return k == Kind::kAllReduce || k == Kind::kReduce || k == Kind::kReduceScatter;
}
inline bool rooted(Kind k) {
  return k == Kind::kReduce || k == Kind::kBroadcast || k == Kind::kGather || k == Kind::kScatter;
}

struct Case {
  Kind kind = Kind::kAllReduce;
  uniDataType_t type = uniFloat32;
  uniRedOp_t op = uniSum;
  size_t count = 0;
  int root = 0;
  bool in_place = false;
  std::string text() const {
    return std::string(kind_name(kind)) + " type " + std::to_string(type) + " op " +
           std::to_string(op) + " count " + std::to_string(count) + " root " +
           std::to_string(root) + (in_place ? " in place" : "");
  }
};

// Buffers of one rank for one case. Canaries around the output show writes outside it.
class CaseRun {
 public:
  CaseRun(const Case& c, int rank, int ranks)
      : c_(c), rank_(rank), ranks_(ranks), size_(size_of(c.type)) {
    const auto n = static_cast<size_t>(ranks);
    const bool many_in =
        c.kind == Kind::kReduceScatter || c.kind == Kind::kScatter || c.kind == Kind::kAllToAll;
    const bool many_out =
        c.kind == Kind::kAllGather || c.kind == Kind::kGather || c.kind == Kind::kAllToAll;
    in_count_ = c.count * (many_in ? n : 1);
    out_count_ = c.count * (many_out ? n : 1);
    const size_t most = (std::max(in_count_, out_count_) + 2) * size_;
    send_.assign(most, 'S');
    recv_.assign(most, 'R');
    const std::vector<char> mine = inputs(c.type, c.op, rank, 0, in_count_);
    char* to = send();
    if (!mine.empty()) std::memcpy(to, mine.data(), mine.size());
    before_ = recv_;
    sent_ = send_;
  }

  char* send() {
    if (!c_.in_place) return send_.data() + size_;
    const bool own = c_.kind == Kind::kAllGather || c_.kind == Kind::kGather;
    return recv_.data() + size_ + (own ? static_cast<size_t>(rank_) * c_.count * size_ : 0);
  }
  char* recv() {
    const bool own = c_.in_place && (c_.kind == Kind::kReduceScatter || c_.kind == Kind::kScatter);
    return recv_.data() + size_ + (own ? static_cast<size_t>(rank_) * c_.count * size_ : 0);
  }

  uniResult_t call(uniComm_t comm, uniStream_t stream) {
    switch (c_.kind) {
      case Kind::kAllReduce:
        return uniAllReduce(send(), recv(), c_.count, c_.type, c_.op, comm, stream);
      case Kind::kReduce:
        return uniReduce(send(), recv(), c_.count, c_.type, c_.op, c_.root, comm, stream);
      case Kind::kBroadcast:
        return uniBroadcast(send(), recv(), c_.count, c_.type, c_.root, comm, stream);
      case Kind::kAllGather:
        return uniAllGather(send(), recv(), c_.count, c_.type, comm, stream);
      case Kind::kReduceScatter:
        return uniReduceScatter(send(), recv(), c_.count, c_.type, c_.op, comm, stream);
      case Kind::kGather:
        return uniGather(send(), recv(), c_.count, c_.type, c_.root, comm, stream);
      case Kind::kScatter:
        return uniScatter(send(), recv(), c_.count, c_.type, c_.root, comm, stream);
      case Kind::kAllToAll:
        return uniAllToAll(send(), recv(), c_.count, c_.type, comm, stream);
      case Kind::kBarrier:
        return uniBarrier(comm, stream);
    }
    return uniInternalError;
  }

  // Empty when all is as it must be.
  std::string wrong() {
    if (c_.kind == Kind::kBarrier) return "";
    const bool has_output =
        !(c_.kind == Kind::kReduce || c_.kind == Kind::kGather) || rank_ == c_.root;
    if (!c_.in_place && send_ != sent_) return "the input was changed";
    if (!has_output)
      return c_.in_place || recv_ == before_ ? "" : "a rank without output was written to";
    const std::vector<char> want = expected();
    const char* got = recv();
    for (size_t i = 0; i < want.size(); i++) {
      if (got[i] != want[i]) return "element " + std::to_string(i / size_) + " is wrong";
    }
    if (!c_.in_place && (recv_[0] != 'R' || recv_[size_ + want.size()] != 'R'))
      return "written outside the output";
    return "";
  }

 private:
  std::vector<char> expected() const {
    switch (c_.kind) {
      case Kind::kAllReduce:
      case Kind::kReduce:
        return reduced(c_.type, c_.op, ranks_, 0, c_.count);
      case Kind::kReduceScatter:
        return reduced(c_.type, c_.op, ranks_, static_cast<size_t>(rank_) * c_.count, c_.count);
      case Kind::kBroadcast:
        return inputs(c_.type, c_.op, c_.root, 0, c_.count);
      case Kind::kScatter:
        return inputs(c_.type, c_.op, c_.root, static_cast<size_t>(rank_) * c_.count, c_.count);
      default:
        break;
    }
    std::vector<char> all;
    for (int r = 0; r < ranks_; r++) {
      const size_t first = c_.kind == Kind::kAllToAll ? static_cast<size_t>(rank_) * c_.count : 0;
      const std::vector<char> part = inputs(c_.type, c_.op, r, first, c_.count);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  Case c_;
  int rank_, ranks_;
  size_t size_, in_count_ = 0, out_count_ = 0;
  std::vector<char> send_, recv_, before_, sent_;
};

// All ranks of `world` run all cases, in order.
inline void run_cases(const Ranks& world, const std::vector<Case>& cases) {
  std::atomic<bool> stop{false};
  world.run([&](int rank, uniComm_t comm) {
    for (const Case& c : cases) {
      CaseRun run(c, rank, world.count());
      const uniResult_t result = run.call(comm, nullptr);
      const std::string wrong = result == uniSuccess ? run.wrong() : uniGetLastError(nullptr);
      EXPECT_EQ(wrong, "") << "rank " << rank << " of " << world.count() << ": " << c.text();
      if (!wrong.empty() && result != uniSuccess)
        return;  // the communicator has failed: the others end too
    }
  });
}

}  // namespace unisono::testing
