// Plans of two levels on ranks whose hosts differ by name (UNISONO_HOSTID), with blocks of unequal
// length: what the tables of one host cannot reach.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/comm/processes.h"
#include "unisono/unisono.h"

namespace unisono::testing {
namespace {

using Sizes = std::vector<size_t>;

int32_t value(int rank, size_t block, size_t i) {
  return static_cast<int32_t>(rank * 10'000 + static_cast<int>(block) * 1000 +
                              static_cast<int>(i % 97));
}

// Blocks of very different lengths, one empty, in descending order and with gaps.
struct Blocks {
  Sizes counts, offsets;
  size_t extent = 2;
  explicit Blocks(int ranks) {
    static const size_t kinds[] = {7, 0, 40'003, 1, 300, 65'536, 12};
    for (int r = 0; r < ranks; r++) counts.push_back(kinds[r % 7]);
    offsets.resize(counts.size());
    for (size_t r = counts.size(); r-- > 0;) {
      offsets[r] = extent;
      extent += counts[r] + 3;
    }
  }
  std::vector<int32_t> block(int from, size_t b) const {
    std::vector<int32_t> values(counts[b]);
    for (size_t i = 0; i < values.size(); i++) values[i] = value(from, b, i);
    return values;
  }
  std::vector<int32_t> slice(const std::vector<int32_t>& buffer, size_t b) const {
    const auto at = buffer.begin() + static_cast<ptrdiff_t>(offsets[b]);
    return {at, at + static_cast<ptrdiff_t>(counts[b])};
  }
  // All blocks, each as rank from(b) has it.
  template <class From>
  std::vector<int32_t> whole(const From& from) const {
    std::vector<int32_t> buffer(extent, -1);
    for (size_t b = 0; b < counts.size(); b++) {
      const auto values = block(from(b), b);
      std::copy(values.begin(), values.end(), buffer.begin() + static_cast<ptrdiff_t>(offsets[b]));
    }
    return buffer;
  }
};

class Rank {
 public:
  Rank(int ranks, int rank, uniComm_t comm)
      : blocks_(ranks), ranks_(ranks), rank_(rank), me_(static_cast<size_t>(rank)), comm_(comm) {}

  void everything() {
    all_gather();
    reduce_scatter();
    for (int root = 0; root < ranks_; root++) {
      gather(root);
      scatter(root);
    }
    ended(uniBarrier(comm_, nullptr));
  }

 private:
  // Each block as its own rank has it.
  static int own(size_t block) { return static_cast<int>(block); }

  void all_gather() {
    const auto mine = blocks_.block(rank_, me_);
    std::vector<int32_t> got(blocks_.extent, -1);
    ended(uniAllGatherV(mine.data(), got.data(), blocks_.counts.data(), blocks_.offsets.data(),
                        uniInt32, comm_, nullptr));
    EXPECT_EQ(got, blocks_.whole(own));
  }
  void reduce_scatter() {
    const auto all = blocks_.whole([this](size_t) { return rank_; });
    std::vector<int32_t> got(blocks_.counts[me_]);
    ended(uniReduceScatterV(all.data(), got.data(), blocks_.counts.data(), blocks_.offsets.data(),
                            uniInt32, uniSum, comm_, nullptr));
    std::vector<int32_t> sum(blocks_.counts[me_], 0);
    for (int rank = 0; rank < ranks_; rank++)
      for (size_t i = 0; i < sum.size(); i++) sum[i] += value(rank, me_, i);
    EXPECT_EQ(got, sum);
  }
  void gather(int root) {
    const auto mine = blocks_.block(rank_, me_);
    std::vector<int32_t> got(blocks_.extent, -1);
    ended(uniGatherV(mine.data(), rank_ == root ? got.data() : nullptr, blocks_.counts.data(),
                     blocks_.offsets.data(), uniInt32, root, comm_, nullptr));
    if (rank_ != root) return;
    EXPECT_EQ(got, blocks_.whole(own)) << "root " << root;
  }
  void scatter(int root) {
    const auto all = blocks_.whole([root](size_t) { return root; });
    std::vector<int32_t> got(blocks_.counts[me_]);
    ended(uniScatterV(rank_ == root ? all.data() : nullptr, got.data(), blocks_.counts.data(),
                      blocks_.offsets.data(), uniInt32, root, comm_, nullptr));
    EXPECT_EQ(got, blocks_.block(root, me_)) << "root " << root;
  }
  void ended(uniResult_t result) const {
    ASSERT_EQ(result, uniSuccess) << uniGetLastError(comm_);
    uniCommInfo_t info{};
    info.size = sizeof info;
    ASSERT_EQ(uniCommQuery(comm_, &info), uniSuccess);
    EXPECT_STREQ(info.last_algorithm, "two_level");
  }

  const Blocks blocks_;
  const int ranks_, rank_;
  const size_t me_;
  const uniComm_t comm_;
};

class TwoLevel : public ::testing::TestWithParam<std::string> {};

// A letter a rank: its host.
TEST_P(TwoLevel, MovesUnequalBlocksBetweenHosts) {
  const std::string hosts = GetParam();
  const int ranks = static_cast<int>(hosts.size());
  Processes processes(
      ranks, "shm,tcp", [&](int rank, uniComm_t comm) { Rank(ranks, rank, comm).everything(); },
      [&](int rank) {
        const std::string name(1, hosts[static_cast<size_t>(rank)]);
        setenv("UNISONO_HOSTID", name.c_str(), 1);
        setenv("UNISONO_ALGORITHM", "two_level", 1);
      });
  for (int rank = 0; rank < ranks; rank++) EXPECT_EQ(processes.wait_for(rank), 0) << rank;
}

INSTANTIATE_TEST_SUITE_P(Hosts, TwoLevel,
                         ::testing::Values("aaabb", "abbbb", "aabbc", "abaab", "abcabca"),
                         [](const auto& hosts) { return hosts.param; });

}  // namespace
}  // namespace unisono::testing
