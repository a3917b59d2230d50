// The sampler through its C interface. What PyTorch gives was printed by PyTorch 2.11
// (sampler_against_torch.py --golden); that script compares whole tables where PyTorch is
// installed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/sample.h"
#include "unisono/ddp.h"

namespace {

using Indices = std::vector<uint64_t>;

// A sampler of this test: the config's fields by name, in this order.
struct Options {
  int shuffle = 1, drop_last = 0, evaluation = 0;
  uint64_t seed = 0;
};

class Sampler {
 public:
  Sampler(uint64_t samples, int ranks, int rank, const Options& options) {
    uniSamplerConfig_t config = UNI_SAMPLER_CONFIG_INITIALIZER;
    config.shuffle = options.shuffle;
    config.drop_last = options.drop_last;
    config.evaluation = options.evaluation;
    config.seed = options.seed;
    EXPECT_EQ(uniSamplerCreate(&sampler_, samples, ranks, rank, &config), uniSuccess)
        << uniGetLastError(nullptr);
  }
  ~Sampler() { EXPECT_EQ(uniSamplerDestroy(sampler_), uniSuccess); }
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  uint64_t count() const {
    uint64_t count = 0;
    EXPECT_EQ(uniSamplerCount(sampler_, &count), uniSuccess);
    return count;
  }
  void set_epoch(uint64_t epoch) { EXPECT_EQ(uniSamplerSetEpoch(sampler_, epoch), uniSuccess); }
  Indices next(uint64_t capacity) {
    Indices indices(capacity);
    uint64_t count = 0;
    EXPECT_EQ(uniSamplerNext(sampler_, indices.data(), capacity, &count), uniSuccess);
    indices.resize(count);
    return indices;
  }
  // What is left of this epoch.
  Indices rest(uint64_t at_a_time) {
    Indices all;
    for (Indices some = next(at_a_time); !some.empty(); some = next(at_a_time)) {
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  std::array<uint64_t, 2> position() const {
    std::array<uint64_t, 2> at{};
    EXPECT_EQ(uniSamplerPosition(sampler_, &at[0], &at[1]), uniSuccess);
    return at;
  }
  uniResult_t resume(uint64_t epoch, uint64_t position) {
    return uniSamplerResume(sampler_, epoch, position);
  }

 private:
  uniSampler_t sampler_ = nullptr;
};

Indices epoch_of(uint64_t samples, int ranks, int rank, const Options& options, uint64_t epoch) {
  Sampler sampler(samples, ranks, rank, options);
  sampler.set_epoch(epoch);
  Indices indices = sampler.rest(100);
  EXPECT_EQ(indices.size(), sampler.count());
  return indices;
}

uint64_t fnv1a(uint64_t hash, const Indices& indices) {
  for (uint64_t index : indices) {
    for (int byte = 0; byte < 8; byte++, index >>= 8) hash = (hash ^ (index & 255)) * 0x100000001b3;
  }
  return hash;
}

TEST(SamplerTest, GivesTheIndicesThatPyTorchPrinted) {
  struct Row {
    uint64_t samples;
    int ranks, shuffle, drop_last;
    uint64_t seed, epoch, hash;
  };
  const Row rows[] = {
      {10, 1, 1, 0, 0, 0, 0xdcdebc4114a6e5c4},
      {10, 3, 1, 0, 0, 0, 0x677861647e6b17a1},
      {10, 3, 1, 1, 0, 0, 0x223fa7090f89bb46},
      {10, 3, 0, 0, 0, 5, 0xa1a0650b040d4aa5},
      {3, 8, 1, 0, 7, 2, 0x3f5852ac8808e644},
      {3, 8, 1, 1, 7, 2, 0xcbf29ce484222325},
      {1, 5, 1, 0, 0, 0, 0x40d69e0cf0f65c45},
      {1000, 4, 1, 0, 42, 0, 0x58bf746fdb543cb1},
      {1000, 4, 1, 0, 42, 9, 0x37c944c74924bfad},
      {1797, 7, 1, 1, 1, 3, 0x6f20f8907433a05b},
      {1797, 7, 1, 0, 4294967297, 3, 0x9f878df448a29d8b},
      {624, 2, 1, 0, 2147483655, 0, 0xb2d9219d47af5a6d},
      {5000, 9, 1, 1, 4294967295, 1, 0x7c3316158c9bbce2},
  };
  for (const Row& row : rows) {
    uint64_t hash = 0xcbf29ce484222325;
    for (int rank = 0; rank < row.ranks; rank++) {
      hash = fnv1a(hash, epoch_of(row.samples, row.ranks, rank,
                                  {row.shuffle, row.drop_last, 0, row.seed}, row.epoch));
    }
    EXPECT_EQ(hash, row.hash) << row.samples << " samples, " << row.ranks << " ranks, seed "
                              << row.seed << ", epoch " << row.epoch;
  }
  const Indices order = epoch_of(12, 1, 0, {1, 0, 0, 11}, 0);
  EXPECT_EQ(Indices(order.begin(), order.begin() + 4), (Indices{9, 4, 2, 11}));
  EXPECT_EQ(Indices(order.end() - 4, order.end()), (Indices{0, 6, 10, 1}));
}

// PyTorch draws 64 bits an entry from (2^32 - 1) / 20 entries on: 860 MB and seconds, so not daily.
TEST(SamplerTest, FollowsPyTorchsSecondRuleForVeryLongLists) {
  if (!unisono::testing::full()) GTEST_SKIP() << "only with UNISONO_TEST_FULL=1";
  const uint64_t samples = std::numeric_limits<uint32_t>::max() / 20;
  Sampler sampler(samples, 1, 0, {1, 0, 0, 11});
  EXPECT_EQ(sampler.next(4), (Indices{189915727, 188338941, 57361543, 6609080}));
  EXPECT_EQ(sampler.resume(0, samples / 2), uniSuccess);
  EXPECT_EQ(sampler.next(4), (Indices{5434616, 105125596, 91645747, 176830412}));
  EXPECT_EQ(sampler.resume(0, samples - 4), uniSuccess);
  EXPECT_EQ(sampler.next(5), (Indices{102121979, 179896496, 97339646, 65490602}));
}

TEST(SamplerTest, WithoutAConfigShufflesWithSeedZero) {
  uniSampler_t sampler = nullptr;
  ASSERT_EQ(uniSamplerCreate(&sampler, 10, 1, 0, nullptr), uniSuccess);
  Indices indices(11);
  uint64_t count = 0;
  ASSERT_EQ(uniSamplerNext(sampler, indices.data(), indices.size(), &count), uniSuccess);
  indices.resize(count);
  EXPECT_EQ(indices, epoch_of(10, 1, 0, {}, 0));
  EXPECT_EQ(uniSamplerDestroy(sampler), uniSuccess);
}

TEST(SamplerTest, AnEpochCoversTheDataSetOnceAndAnotherEpochInAnotherOrder) {
  const uint64_t samples = 240;
  std::vector<Indices> orders;
  for (uint64_t epoch = 0; epoch < 3; epoch++) {
    Indices all;
    for (int rank = 0; rank < 6; rank++) {
      const Indices mine = epoch_of(samples, 6, rank, {1, 0, 0, 5}, epoch);
      all.insert(all.end(), mine.begin(), mine.end());
    }
    orders.push_back(all);
    std::sort(all.begin(), all.end());
    Indices expected(samples);
    std::iota(expected.begin(), expected.end(), uint64_t{0});
    EXPECT_EQ(all, expected);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(SamplerTest, SeedAndEpochAreAddedAsPyTorchDoes) {
  EXPECT_EQ(epoch_of(50, 2, 1, {1, 0, 0, 3}, 4), epoch_of(50, 2, 1, {1, 0, 0, 7}, 0));
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(epoch_of(50, 2, 1, {1, 0, 0, most}, 1), epoch_of(50, 2, 1, {1, 0, 0, 0}, 0));
}

TEST(SamplerTest, FillsUpFromTheHeadAsOftenAsNeeded) {
  EXPECT_EQ(epoch_of(5, 3, 0, {0, 0, 0, 0}, 0), (Indices{0, 3}));
  EXPECT_EQ(epoch_of(5, 3, 2, {0, 0, 0, 0}, 0), (Indices{2, 0}));
  for (int rank = 0; rank < 8; rank++) {
    EXPECT_EQ(epoch_of(3, 8, rank, {0, 0, 0, 0}, 0), (Indices{static_cast<uint64_t>(rank) % 3}));
  }
}

TEST(SamplerTest, DropsTheTailWhichMayBeEverything) {
  EXPECT_EQ(epoch_of(8, 3, 1, {0, 1, 0, 0}, 0), (Indices{1, 4}));
  EXPECT_EQ(epoch_of(9, 3, 1, {0, 1, 0, 0}, 0), (Indices{1, 4, 7}));
  EXPECT_TRUE(epoch_of(3, 8, 0, {1, 1, 0, 0}, 0).empty());
}

TEST(SamplerTest, AnEmptyDataSetIsOverAtOnce) {
  for (const int drop_last : {0, 1}) {
    for (const int evaluation : {0, 1}) {
      EXPECT_TRUE(epoch_of(0, 4, 3, {1, drop_last, evaluation, 0}, 2).empty());
    }
  }
}

TEST(SamplerTest, EvaluationGivesEverySampleOnceInOrderAndEvenly) {
  for (const uint64_t samples : {1, 2, 7, 64, 359, 1000}) {
    for (int ranks = 1; ranks <= 9; ranks++) {
      std::vector<int> seen(samples);
      uint64_t least = samples, most = 0;
      for (int rank = 0; rank < ranks; rank++) {
        // Shuffle, seed, drop_last and the epoch do not matter to an evaluation.
        const Indices mine = epoch_of(samples, ranks, rank, {1, rank % 2, 1, 9}, 3);
        for (size_t i = 0; i < mine.size(); i++) {
          EXPECT_EQ(mine[i], i * static_cast<uint64_t>(ranks) + static_cast<uint64_t>(rank));
          ASSERT_LT(mine[i], samples);
          seen[mine[i]]++;
        }
        least = std::min<uint64_t>(least, mine.size());
        most = std::max<uint64_t>(most, mine.size());
      }
      EXPECT_EQ(seen, std::vector<int>(samples, 1)) << samples << " over " << ranks;
      EXPECT_LE(most - least, 1U);
    }
  }
}

TEST(SamplerTest, ResumesInMidEpochExactlyWhereItWas) {
  const Options options{1, 0, 0, 12};
  for (const uint64_t taken : {0, 1, 13, 66, 67}) {
    Sampler first(200, 3, 2, options);
    first.set_epoch(6);
    EXPECT_EQ(first.next(taken).size(), taken);
    const auto [epoch, position] = first.position();
    EXPECT_EQ(epoch, 6U);
    EXPECT_EQ(position, taken);
    Sampler second(200, 3, 2, options);
    ASSERT_EQ(second.resume(epoch, position), uniSuccess);
    EXPECT_EQ(second.position(), first.position());
    EXPECT_EQ(second.rest(9), first.rest(11));
    EXPECT_EQ(second.position(), (std::array<uint64_t, 2>{6, 67}));
    EXPECT_TRUE(second.next(5).empty());
  }
}

TEST(SamplerTest, SetEpochBeginsTheEpochAnewAlsoTheSameOne) {
  Sampler sampler(100, 2, 0, {1, 0, 0, 1});
  const Indices first = sampler.rest(7);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.rest(50), first);
  sampler.set_epoch(1);
  EXPECT_NE(sampler.rest(50), first);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.rest(64), first);
}

// Nothing is stored without shuffling, and places near 2^64 do not wrap around.
TEST(SamplerTest, CountsUpToTwoToThe64WithoutShuffling) {
  const uint64_t samples = std::numeric_limits<uint64_t>::max();
  Sampler sampler(samples, 1000, 999, {0, 0, 0, 0});
  EXPECT_EQ(sampler.count(), samples / 1000 + 1);
  ASSERT_EQ(sampler.resume(0, sampler.count() - 2), uniSuccess);
  // samples % 1000 is 615: the last round has 615 samples, then 385 from the head.
  EXPECT_EQ(sampler.next(3), (Indices{samples - 615 - 1, 384}));
}

uniResult_t create(uint64_t samples, int ranks, int rank, const uniSamplerConfig_t* config) {
  uniSampler_t sampler = nullptr;
  const uniResult_t result = uniSamplerCreate(&sampler, samples, ranks, rank, config);
  EXPECT_EQ(sampler == nullptr, result != uniSuccess);
  EXPECT_EQ(uniSamplerDestroy(sampler), uniSuccess);
  return result;
}

void expect_named(uniResult_t result, const std::string& argument) {
  EXPECT_EQ(result, uniInvalidArgument);
  EXPECT_EQ(std::string(uniGetLastError(nullptr)).rfind(argument + ": ", 0), 0U)
      << "not about " << argument << ": " << uniGetLastError(nullptr);
}

TEST(SamplerTest, AWrongArgumentOfCreateIsNamed) {
  expect_named(uniSamplerCreate(nullptr, 10, 1, 0, nullptr), "sampler");
  expect_named(create(10, 0, 0, nullptr), "ranks");
  expect_named(create(10, -3, 0, nullptr), "ranks");
  expect_named(create(10, 4, 4, nullptr), "rank");
  expect_named(create(10, 4, -1, nullptr), "rank");
  const uint64_t too_many = uint64_t{1} << 32;
  expect_named(create(too_many, 4, 0, nullptr), "samples");
  const uniSamplerConfig_t made = UNI_SAMPLER_CONFIG_INITIALIZER;
  uniSamplerConfig_t config = made;
  config.magic = 1;
  expect_named(create(10, 1, 0, &config), "config");
  config = made;
  config.size = 12;
  expect_named(create(10, 1, 0, &config), "config");
  config = made;
  config.shuffle = 2;
  expect_named(create(10, 1, 0, &config), "config.shuffle");
  config = made;
  config.drop_last = -1;
  expect_named(create(10, 1, 0, &config), "config.drop_last");
  config = made;
  config.evaluation = 7;
  expect_named(create(10, 1, 0, &config), "config.evaluation");
  config.evaluation = 1;  // not shuffled: any size
  EXPECT_EQ(create(too_many, 1, 0, &config), uniSuccess);
}

TEST(SamplerTest, ALaterCallersLongerConfigIsAccepted) {
  struct {
    uniSamplerConfig_t known = UNI_SAMPLER_CONFIG_INITIALIZER;
    uint64_t unknown = 3;
  } later;
  later.known.size = sizeof later;
  EXPECT_EQ(create(10, 1, 0, &later.known), uniSuccess);
}

TEST(SamplerTest, AWrongArgumentOfTheOtherCallsIsNamedAndMovesNothing) {
  uniSampler_t sampler = nullptr;
  ASSERT_EQ(uniSamplerCreate(&sampler, 10, 2, 0, nullptr), uniSuccess);
  uint64_t one = 0, other = 0;
  expect_named(uniSamplerCount(nullptr, &one), "sampler");
  expect_named(uniSamplerCount(sampler, nullptr), "count");
  expect_named(uniSamplerSetEpoch(nullptr, 1), "sampler");
  expect_named(uniSamplerNext(nullptr, &one, 1, &other), "sampler");
  expect_named(uniSamplerNext(sampler, nullptr, 1, &other), "indices");
  expect_named(uniSamplerNext(sampler, &one, 1, nullptr), "count");
  expect_named(uniSamplerPosition(nullptr, &one, &other), "sampler");
  expect_named(uniSamplerPosition(sampler, nullptr, &other), "epoch");
  expect_named(uniSamplerPosition(sampler, &one, nullptr), "position");
  expect_named(uniSamplerResume(nullptr, 0, 0), "sampler");
  expect_named(uniSamplerResume(sampler, 3, 6), "position");
  ASSERT_EQ(uniSamplerPosition(sampler, &one, &other), uniSuccess);
  EXPECT_EQ(one, 0U);
  EXPECT_EQ(other, 0U);
  EXPECT_EQ(uniSamplerResume(sampler, 3, 5), uniSuccess);  // its end
  EXPECT_EQ(uniSamplerNext(sampler, nullptr, 0, &other), uniSuccess);
  EXPECT_EQ(uniSamplerDestroy(sampler), uniSuccess);
  EXPECT_EQ(uniSamplerDestroy(nullptr), uniSuccess);
}

}  // namespace
