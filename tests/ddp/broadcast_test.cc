// uniBroadcastCoalesced: every tensor of every rank is root's, whatever the sizes and types; lists
// that differ are found.
#include <cstring>

#include "tests/comm/harness.h"
#include "unisono/ddp.h"

namespace unisono::testing {
namespace {

struct Tensors {
  std::vector<std::vector<unsigned char>> data;
  std::vector<void*> pointers;
  std::vector<size_t> counts;
  std::vector<uniDataType_t> types;

  void add(uniDataType_t type, size_t element_bytes, size_t count) {
    data.emplace_back(count * element_bytes);
    pointers.push_back(count == 0 ? nullptr : data.back().data());
    counts.push_back(count);
    types.push_back(type);
  }
  void fill(int rank) {
    for (size_t t = 0; t < data.size(); t++) {
      for (size_t i = 0; i < data[t].size(); i++) {
        data[t][i] = static_cast<unsigned char>(
            (static_cast<size_t>(rank) * 31 + t * 7 + i * 13 + i / 251) & 0xff);
      }
    }
  }
  uniResult_t broadcast(uniComm_t comm, int root) {
    return uniBroadcastCoalesced(comm, pointers.data(), counts.data(), types.data(),
                                 static_cast<int>(pointers.size()), root);
  }
};

// Small ones, none, some too large to be packed, and more small ones than one packet holds.
Tensors mixed_tensors() {
  Tensors tensors;
  tensors.add(uniFloat32, 4, 7);
  tensors.add(uniInt64, 8, 1);
  tensors.add(uniBool, 1, 3);
  tensors.add(uniFloat32, 4, 0);
  tensors.add(uniFloat16, 2, 400'001);  // large
  tensors.add(uniBfloat16, 2, 5);
  for (int i = 0; i < 12; i++) tensors.add(uniFloat32, 4, 100'001);  // just small
  tensors.add(uniFloat64, 8, 200'000);                               // large
  tensors.add(uniInt8, 1, 1);
  tensors.add(uniUint32, 4, 9);
  return tensors;
}

class BroadcastCoalesced : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(BroadcastCoalesced, MakesEveryTensorThatOfRoot) {
  const auto [transport, ranks] = GetParam();
  const Ranks world(ranks, {transport});
  ASSERT_TRUE(world.ok());
  for (const int root : {0, ranks - 1}) {
    world.run([&, root = root](int rank, uniComm_t comm) {
      Tensors mine = mixed_tensors(), expected = mixed_tensors();
      expected.fill(root);
      for (int i = 0; i < 2; i++) {
        mine.fill(rank);
        UNI_OK(mine.broadcast(comm, root));
        EXPECT_EQ(mine.data, expected.data);
      }
    });
  }
}

TEST_P(BroadcastCoalesced, OfNothingOrOnlyLargeOnesWorks) {
  const auto [transport, ranks] = GetParam();
  const Ranks world(ranks, {transport});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    UNI_OK(uniBroadcastCoalesced(comm, nullptr, nullptr, nullptr, 0, 0));
    Tensors mine, expected;
    for (Tensors* tensors : {&mine, &expected}) tensors->add(uniFloat32, 4, 300'000);
    mine.fill(rank);
    expected.fill(0);
    UNI_OK(mine.broadcast(comm, 0));
    EXPECT_EQ(mine.data, expected.data);
  });
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<std::string, int>>& info) {
  return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, BroadcastCoalesced,
                         ::testing::Combine(::testing::Values("shm", "sim"),
                                            ::testing::Values(1, 2, 5)),
                         name_of);

// As many bytes, other types: nothing is written, nobody hangs.
TEST(BroadcastCoalescedLists, ThatDifferAreAMismatch) {
  for (const bool same_bytes : {true, false}) {
    const Ranks world(3, {"shm"});
    ASSERT_TRUE(world.ok());
    world.run([&](int rank, uniComm_t comm) {
      Tensors mine;
      mine.add(uniInt8, 1, 16);
      if (rank == 2 && same_bytes) {
        mine.add(uniInt32, 4, 25);
      } else {
        mine.add(uniFloat32, 4, rank == 2 ? 26 : 25);
      }
      mine.add(uniFloat32, 4, 300'000);
      mine.fill(rank);
      const auto before = mine.data;
      const uniResult_t result = mine.broadcast(comm, 0);
      const std::string words = uniGetLastError(nullptr);
      if (rank == 2) {
        EXPECT_EQ(result, uniMismatch) << words;
        EXPECT_EQ(mine.data, before);
        EXPECT_EQ(words.find("another list of tensors") != std::string::npos, same_bytes) << words;
      } else {
        EXPECT_TRUE(result == uniMismatch || result == uniAborted) << result << ": " << words;
      }
    });
  }
}

TEST(BroadcastCoalescedArguments, ThatAreWrongAreNamed) {
  const Ranks world(2, {"shm"});
  ASSERT_TRUE(world.ok());
  float data[4] = {};
  void* tensors[] = {data, nullptr};
  size_t counts[] = {4, 1};
  uniDataType_t types[] = {uniFloat32, uniFloat32};
  const auto refused = [&](uniResult_t result, const std::string& words) {
    EXPECT_EQ(result, uniInvalidArgument);
    EXPECT_NE(std::string(uniGetLastError(nullptr)).find(words), std::string::npos)
        << uniGetLastError(nullptr);
  };
  refused(uniBroadcastCoalesced(nullptr, tensors, counts, types, 1, 0), "comm: is null");
  refused(uniBroadcastCoalesced(world[0], nullptr, counts, types, 1, 0), "tensors: is null");
  refused(uniBroadcastCoalesced(world[0], tensors, nullptr, types, 1, 0), "counts: is null");
  refused(uniBroadcastCoalesced(world[0], tensors, counts, nullptr, 1, 0), "types: is null");
  refused(uniBroadcastCoalesced(world[0], tensors, counts, types, -1, 0), "tensor_count: -1");
  refused(uniBroadcastCoalesced(world[0], tensors, counts, types, 1, 2), "root: 2");
  refused(uniBroadcastCoalesced(world[0], tensors, counts, types, 2, 0), "tensors[1]: is null");
  const int no_type = 99;
  std::memcpy(&types[0], &no_type, sizeof no_type);
  refused(uniBroadcastCoalesced(world[0], tensors, counts, types, 1, 0), "types[0]: 99");
  types[0] = uniFloat32;
  counts[0] = SIZE_MAX;
  refused(uniBroadcastCoalesced(world[0], tensors, counts, types, 1, 0), "counts[0]");
}

}  // namespace
}  // namespace unisono::testing
