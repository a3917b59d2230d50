// The same bits: on every rank, on every transport, and, when asked for, whatever the size, offset,
// fusion, transport or instruction set. Half types are rounded once over shared memory. NaN and
// signed zeros of min and max follow one table.
#include <cinttypes>
#include <cmath>
#include <limits>
#include <random>

#include "algorithms/registry.h"
#include "comm/reduce/half.h"
#include "comm/reduce/kernels.h"
#include "tests/comm/collective_case.h"

namespace unisono::testing {
namespace {

constexpr uint64_t kSeed = 20261130;

uint64_t hash_bytes(const void* data, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3u;
  return hash;
}

// Numbers of wildly different magnitudes: any other order of additions gives other bits.
std::vector<float> wild_floats(int rank, size_t count) {
  std::mt19937_64 random(kSeed + static_cast<uint64_t>(rank));
  std::vector<float> values(count);
  for (float& v : values) {
    const auto mantissa =
        static_cast<float>(static_cast<int64_t>(random() % 2'000'001) - 1'000'000);
    v = std::ldexp(mantissa, static_cast<int>(random() % 40) - 20);
  }
  return values;
}

std::vector<std::vector<float>> wild_inputs(int ranks, size_t count) {
  std::vector<std::vector<float>> inputs;
  for (int rank = 0; rank < ranks; rank++) inputs.push_back(wild_floats(rank, count));
  return inputs;
}

// The sum of every rank's input, computed in calls of `piece` elements from buffers `offset`
// elements off alignment; the hash of the result, which must be the same on every rank.
uint64_t summed_hash(const Ranks& world, const std::vector<std::vector<float>>& inputs,
                     size_t piece, size_t offset) {
  const size_t count = inputs.front().size();
  std::vector<uint64_t> hashes(inputs.size());
  world.run([&](int rank, uniComm_t comm) {
    std::vector<float> in(count + offset), out(count + offset);
    const std::vector<float>& values = inputs[static_cast<size_t>(rank)];
    std::copy(values.begin(), values.end(), in.begin() + static_cast<ptrdiff_t>(offset));
    for (size_t at = 0; at < count; at += piece) {
      UNI_OK(uniAllReduce(&in[offset + at], &out[offset + at], std::min(piece, count - at),
                          uniFloat32, uniSum, comm, nullptr));
    }
    hashes[static_cast<size_t>(rank)] = hash_bytes(&out[offset], count * sizeof(float));
  });
  for (const uint64_t hash : hashes) EXPECT_EQ(hash, hashes.front());
  return hashes.front();
}

TEST(Reproducible, OneHashOverTransportsOffsetsSplitBuffersAndInstructionSets) {
  const size_t count = sampled<size_t>(200'003, 200'003, 30'011);
  RecordProperty("seed", std::to_string(kSeed));
  for (const int ranks : {2, 3, 5}) {
    const auto inputs = wild_inputs(ranks, count);
    uint64_t expected = 0;
    for (const char* target : kernel_targets()) {
      ASSERT_TRUE(set_kernel_target(target));
      for (const std::string transport : {"shm", "tcp", "sim"}) {
        WorldSetup setup{transport};
        setup.reproducible = true;
        const Ranks world(ranks, setup);
        ASSERT_TRUE(world.ok());
        for (const size_t piece : {count, count / 3, size_t{7'001}}) {
          for (const size_t offset : {size_t{0}, size_t{3}}) {
            const uint64_t hash = summed_hash(world, inputs, piece, offset);
            if (expected == 0) expected = hash;
            EXPECT_EQ(hash, expected)
                << ranks << " ranks, " << transport << ", " << target << ", pieces of " << piece
                << ", offset " << offset << ", seed " << kSeed;
          }
        }
      }
    }
    // Compared between processors by tools/avx512-check.
    std::printf("hash of %d ranks, %zu elements: %016" PRIx64 "\n", ranks, count, expected);
  }
  std::string ran;
  for (const char* target : kernel_targets()) ran += std::string(ran.empty() ? "" : ", ") + target;
  std::printf("kernels compared on this processor: %s\n", ran.c_str());
  ASSERT_TRUE(set_kernel_target(kernel_targets().back()));
}

// Every algorithm that has an all-reduce on so many ranks of one host.
std::vector<std::string> all_reduces(int ranks) {
  PlanRequest request;
  request.ranks = ranks;
  std::vector<std::string> names;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.supports(request)) names.emplace_back(algorithm.name);
  }
  return names;
}

TEST(Reproducible, EveryAlgorithmGivesAllRanksTheSameBits) {
  for (const int ranks : {2, 3, 6, 7}) {
    const auto inputs = wild_inputs(ranks, 30'001);
    for (const std::string& algorithm : all_reduces(ranks)) {
      const Ranks world(ranks, {"shm", algorithm});
      ASSERT_TRUE(world.ok());
      summed_hash(world, inputs, 30'001, 0);
    }
  }
}

TEST(Reproducible, AnAlgorithmThatCannotBeIsRefused) {
  WorldSetup setup{"shm", "ring"};
  setup.reproducible = true;
  const Ranks world(3, setup);
  ASSERT_TRUE(world.ok());
  world.run([](int, uniComm_t comm) {
    float x = 1;
    const uniResult_t result = uniAllReduce(&x, &x, 1, uniFloat32, uniSum, comm, nullptr);
    EXPECT_TRUE(result == uniInvalidUsage) << uniGetErrorString(result);
    EXPECT_NE(std::string(uniGetLastError(nullptr)).find("reproducible"), std::string::npos);
  });
}

// Over shared memory the owner of a slice reads all inputs: one rounding in all, of a sum that
// float32 holds exactly.
TEST(HalfSums, AreRoundedOnceOverSharedMemory) {
  for (const uniDataType_t type : {uniFloat16, uniBfloat16}) {
    for (const int ranks : {2, 3, 4, 7}) {
      for (const size_t count : {size_t{511}, size_t{150'001}}) {
        const Ranks world(ranks, {"shm"});
        ASSERT_TRUE(world.ok());
        world.run([&](int rank, uniComm_t comm) {
          const auto decode = [&](uint16_t b) {
            return type == uniFloat16 ? float16_to_float(b) : bfloat16_to_float(b);
          };
          const auto encode = [&](float f) {
            return type == uniFloat16 ? float_to_float16(f) : float_to_bfloat16(f);
          };
          std::vector<std::vector<uint16_t>> all;
          for (int r = 0; r < ranks; r++) {
            std::mt19937 random(static_cast<uint32_t>(kSeed) + static_cast<uint32_t>(r));
            all.emplace_back(count);
            for (uint16_t& v : all.back())
              v = encode(static_cast<float>(random() % 4096) / 64.0f - 20.0f);
          }
          std::vector<uint16_t> out(count);
          UNI_OK(uniAllReduce(all[static_cast<size_t>(rank)].data(), out.data(), count, type,
                              uniSum, comm, nullptr));
          size_t wrong = 0;
          for (size_t i = 0; i < count; i++) {
            double exact = 0;
            for (const auto& values : all) exact += static_cast<double>(decode(values[i]));
            wrong += out[i] != encode(static_cast<float>(exact));
          }
          EXPECT_EQ(wrong, 0u) << "type " << type << ", " << ranks << " ranks, count " << count
                               << ", seed " << kSeed;
        });
      }
    }
  }
}

TEST(MinMax, NanAndSignedZerosFollowOneTableEverywhere) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  uint32_t odd_bits =
      0xffc12345;  // a negative NaN with a payload: it must come out as the canonical one
  float odd_nan = 0;
  std::memcpy(&odd_nan, &odd_bits, 4);
  struct Row {
    float a, b;
    uint32_t min, max;
  };
  const std::vector<Row> table = {
      {0.0f, -0.0f, 0x80000000, 0x00000000},  {-0.0f, 0.0f, 0x80000000, 0x00000000},
      {-0.0f, -0.0f, 0x80000000, 0x80000000}, {nan, 1, 0x7fc00000, 0x7fc00000},
      {1, nan, 0x7fc00000, 0x7fc00000},       {odd_nan, -inf, 0x7fc00000, 0x7fc00000},
      {inf, odd_nan, 0x7fc00000, 0x7fc00000}, {nan, odd_nan, 0x7fc00000, 0x7fc00000},
      {-inf, inf, 0xff800000, 0x7f800000},    {1, -1, 0xbf800000, 0x3f800000},
  };
  for (const std::string transport : {"shm", "tcp", "sim"}) {
    for (const int ranks : {2, 3, 4}) {
      for (const std::string& algorithm : all_reduces(ranks)) {
        const Ranks world(ranks, {transport, algorithm});
        ASSERT_TRUE(world.ok());
        world.run([&](int rank, uniComm_t comm) {
          std::vector<float> in;  // rank 0 holds a, the last b, the others a
          for (const Row& row : table) in.push_back(rank == ranks - 1 ? row.b : row.a);
          for (const uniRedOp_t op : {uniMin, uniMax}) {
            std::vector<float> out(in.size());
            UNI_OK(uniAllReduce(in.data(), out.data(), in.size(), uniFloat32, op, comm, nullptr));
            for (size_t i = 0; i < table.size(); i++) {
              uint32_t bits = 0;
              std::memcpy(&bits, &out[i], 4);
              EXPECT_EQ(bits, op == uniMin ? table[i].min : table[i].max)
                  << transport << " " << algorithm << " " << ranks << " ranks, row " << i;
            }
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace unisono::testing
