// The v-variants: blocks of unequal length, with gaps, in place, empty, against a reference worked
// out element by element; and what is refused.
#include <numeric>

#include "algorithms/registry.h"
#include "tests/comm/harness.h"
#include "tests/comm/reference.h"

namespace unisono::testing {
namespace {

using Sizes = std::vector<size_t>;

// Lengths of very different sizes, zeros among them; `turn` makes another table.
Sizes lengths_of(int ranks, int turn) {
  static const size_t kinds[] = {0, 1, 7, 1000, 70'001, 13, 0, 257};
  Sizes lengths;
  for (int r = 0; r < ranks; r++) lengths.push_back(kinds[(r * 3 + turn) % 8]);
  return lengths;
}
Sizes packed(const Sizes& lengths) {
  Sizes offsets(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), size_t{0});
  return offsets;
}
// With gaps, and in descending order.
Sizes scattered(const Sizes& lengths) {
  Sizes offsets(lengths.size());
  size_t at = 3;
  for (size_t r = lengths.size(); r-- > 0;) {
    offsets[r] = at;
    at += lengths[r] + 5;
  }
  return offsets;
}
size_t extent(const Sizes& lengths, const Sizes& offsets) {
  size_t end = 0;
  for (size_t r = 0; r < lengths.size(); r++) end = std::max(end, offsets[r] + lengths[r]);
  return end + 4;
}

// What rank `from` holds for block `block` at element i.
int32_t value(int from, size_t block, size_t i) {
  return static_cast<int32_t>(from * 1000 + static_cast<int>(block) * 100 +
                              static_cast<int>(i % 89));
}
std::vector<int32_t> block_of(int from, size_t block, size_t length) {
  std::vector<int32_t> values(length);
  for (size_t i = 0; i < length; i++) values[i] = value(from, block, i);
  return values;
}
constexpr int32_t kUntouched = -77;

// All blocks at their offsets, each of rank from(block); everything else untouched.
template <class From>
std::vector<int32_t> whole(const Sizes& lengths, const Sizes& offsets, const From& from) {
  std::vector<int32_t> buffer(extent(lengths, offsets), kUntouched);
  for (size_t b = 0; b < lengths.size(); b++) {
    const auto values = block_of(from(b), b, lengths[b]);
    std::copy(values.begin(), values.end(), buffer.begin() + static_cast<ptrdiff_t>(offsets[b]));
  }
  return buffer;
}

struct Form {
  bool gaps, in_place;
};

struct Setup {
  int ranks;
  std::string transport, algorithm;
};
std::string setup_name(const ::testing::TestParamInfo<Setup>& info) {
  const Setup& s = info.param;
  std::string transport = s.transport;
  for (char& letter : transport)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  return transport + "_" + (s.algorithm.empty() ? "planner" : s.algorithm) + "_" +
         std::to_string(s.ranks);
}
void PrintTo(const Setup& s, std::ostream* out) {
  *out << s.ranks << " ranks, " << s.transport << " " << s.algorithm;
}

class VaryingTest : public ::testing::TestWithParam<Setup> {
 protected:
  void SetUp() override {
    setup_ = std::make_unique<Ranks>(
        GetParam().ranks, WorldSetup{GetParam().transport, GetParam().algorithm, false, 60'000});
    ASSERT_TRUE(setup_->ok());
  }
  // body(rank, comm, lengths, offsets, displs argument, in place)
  template <class Body>
  void each(const Body& body) {
    setup_->run([&](int rank, uniComm_t comm) {
      for (int turn = 0; turn < 3; turn++) {
        for (const Form form : {Form{false, false}, Form{true, false}, Form{true, true}}) {
          const Sizes lengths = lengths_of(GetParam().ranks, turn);
          const Sizes offsets = form.gaps ? scattered(lengths) : packed(lengths);
          body(rank, comm, lengths, offsets, form.gaps ? offsets.data() : nullptr, form.in_place);
        }
      }
    });
  }
  std::unique_ptr<Ranks> setup_;
};

TEST_P(VaryingTest, AllGatherPutsEveryBlockInItsPlaceAndTouchesNothingElse) {
  each([](int rank, uniComm_t comm, const Sizes& lengths, const Sizes& offsets,
          const size_t* displs, bool in_place) {
    const auto own = static_cast<size_t>(rank);
    const auto want = whole(lengths, offsets, [](size_t block) { return static_cast<int>(block); });
    std::vector<int32_t> mine = block_of(rank, own, lengths[own]);
    std::vector<int32_t> recv(want.size(), kUntouched);
    const void* send = mine.data();
    if (in_place) {
      std::copy(mine.begin(), mine.end(), recv.begin() + static_cast<ptrdiff_t>(offsets[own]));
      send = recv.data() + offsets[own];
    }
    UNI_OK(uniAllGatherV(send, recv.data(), lengths.data(), displs, uniInt32, comm, nullptr));
    EXPECT_TRUE(recv == want) << "rank " << rank;
  });
}

TEST_P(VaryingTest, ReduceScatterGivesEveryRankItsReducedBlock) {
  each([](int rank, uniComm_t comm, const Sizes& lengths, const Sizes& offsets,
          const size_t* displs, bool in_place) {
    const auto own = static_cast<size_t>(rank);
    const auto n = static_cast<int>(lengths.size());
    auto send = whole(lengths, offsets, [&](size_t) { return rank; });
    std::vector<int32_t> recv(lengths[own] + 1, kUntouched);
    int32_t* out = in_place ? send.data() + offsets[own] : recv.data();
    UNI_OK(uniReduceScatterV(send.data(), out, lengths.data(), displs, uniInt32, uniSum, comm,
                             nullptr));
    for (size_t i = 0; i < lengths[own]; i++) {
      int32_t sum = 0;
      for (int r = 0; r < n; r++) sum += value(r, own, i);
      if (out[i] == sum) continue;
      ADD_FAILURE() << "rank " << rank << " element " << i << ": " << out[i] << ", not " << sum;
      return;
    }
    EXPECT_EQ(recv[lengths[own]], kUntouched);
  });
}

TEST_P(VaryingTest, GatherAndScatterReachEveryRoot) {
  each([](int rank, uniComm_t comm, const Sizes& lengths, const Sizes& offsets,
          const size_t* displs, bool in_place) {
    const auto own = static_cast<size_t>(rank);
    for (int root = 0; root < static_cast<int>(lengths.size()); root++) {
      const bool here = rank == root;
      const auto all =
          whole(lengths, offsets, [](size_t block) { return static_cast<int>(block); });
      const std::vector<int32_t> mine = block_of(rank, own, lengths[own]);
      std::vector<int32_t> gathered(here ? all.size() : 0, kUntouched);
      const void* send = mine.data();
      if (here && in_place) {
        std::copy(mine.begin(), mine.end(),
                  gathered.begin() + static_cast<ptrdiff_t>(offsets[own]));
        send = gathered.data() + offsets[own];
      }
      UNI_OK(uniGatherV(send, here ? gathered.data() : nullptr, lengths.data(),
                        here ? displs : nullptr, uniInt32, root, comm, nullptr));
      EXPECT_TRUE(!here || gathered == all) << "gather, root " << root;
      auto source = all;
      std::vector<int32_t> part(lengths[own] + 1, kUntouched);
      int32_t* out = here && in_place ? source.data() + offsets[own] : part.data();
      UNI_OK(uniScatterV(here ? source.data() : nullptr, out, lengths.data(),
                         here ? displs : nullptr, uniInt32, root, comm, nullptr));
      EXPECT_TRUE(std::equal(mine.begin(), mine.end(), out)) << "scatter, root " << root;
      EXPECT_EQ(part[lengths[own]], kUntouched);
    }
  });
}

std::vector<Setup> setups() {
  std::vector<Setup> list;
  for (const char* transport : {"shm", "tcp", "tcp:sockets=3", "sim"}) {
    for (const int ranks : {1, 2, 3, 5, 8}) list.push_back({ranks, transport, ""});
  }
  for (const Algorithm& algorithm : algorithms()) {
    for (const int ranks : {2, 5, 6}) list.push_back({ranks, "shm", algorithm.name});
  }
  return list;
}
INSTANTIATE_TEST_SUITE_P(All, VaryingTest, ::testing::ValuesIn(setups()), setup_name);

// Of rank `from` for rank `to`.
size_t exchanged(int from, int to) {
  static const size_t kinds[] = {5, 0, 1, 3000, 64, 40'001};
  return kinds[(from * 2 + to * 3) % 6];
}

class ExchangeTest : public ::testing::TestWithParam<Setup> {};

TEST_P(ExchangeTest, AllToAllVDeliversEveryPairsBlock) {
  const Ranks world(GetParam().ranks, {GetParam().transport});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    const int n = world.count();
    Sizes out, in;
    for (int r = 0; r < n; r++) {
      out.push_back(exchanged(rank, r));
      in.push_back(exchanged(r, rank));
    }
    const Sizes rdispls = scattered(in);
    const auto send = whole(out, packed(out), [&](size_t) { return rank; });
    std::vector<int32_t> want(extent(in, rdispls), kUntouched);
    for (size_t r = 0; r < in.size(); r++) {
      const auto values = block_of(static_cast<int>(r), static_cast<size_t>(rank), in[r]);
      std::copy(values.begin(), values.end(), want.begin() + static_cast<ptrdiff_t>(rdispls[r]));
    }
    for (int turn = 0; turn < 20; turn++) {
      std::vector<int32_t> recv(want.size(), kUntouched);
      UNI_OK(uniAllToAllV(send.data(), out.data(), nullptr, recv.data(), in.data(), rdispls.data(),
                          uniInt32, comm, nullptr));
      const auto [got, wanted] = std::mismatch(recv.begin(), recv.end(), want.begin());
      EXPECT_TRUE(got == recv.end())
          << "rank " << rank << ", turn " << turn << ", element " << got - recv.begin() << " of "
          << recv.size() << ": " << *got << ", not " << *wanted;
    }
  });
}
INSTANTIATE_TEST_SUITE_P(All, ExchangeTest,
                         ::testing::Values(Setup{1, "shm", ""}, Setup{2, "shm", ""},
                                           Setup{5, "shm", ""}, Setup{3, "tcp", ""},
                                           Setup{4, "sim", ""}),
                         setup_name);

TEST(Varying, DifferentCountsAreAMismatchOnEveryRank) {
  for (const char* transport : {"shm", "tcp", "sim"}) {
    const Ranks world(3, {transport});
    ASSERT_TRUE(world.ok());
    world.run([&](int rank, uniComm_t comm) {
      // The same sum, cut differently.
      const Sizes counts = rank == 2 ? Sizes{10, 21, 30} : Sizes{11, 20, 30};
      const std::vector<int32_t> send(64, 1);
      std::vector<int32_t> recv(64, 0);
      uniResult_t result =
          uniAllGatherV(send.data(), recv.data(), counts.data(), nullptr, uniInt32, comm, nullptr);
      if (result == uniSuccess) result = uniBarrier(comm, nullptr);
      EXPECT_EQ(result, uniMismatch) << transport << ": " << uniGetLastError(nullptr);
      EXPECT_NE(std::string(uniGetLastError(nullptr)).find("block counts"), std::string::npos)
          << uniGetLastError(nullptr);
    });
  }
}

TEST(Varying, AnAllToAllVWhoseSidesDisagreeFails) {
  const Ranks world(2, {});
  ASSERT_TRUE(world.ok());
  world.run([&](int rank, uniComm_t comm) {
    const std::vector<int32_t> send(16, 1);
    std::vector<int32_t> recv(16, 0);
    const Sizes out = {2, 3}, in = rank == 0 ? Sizes{2, 2} : Sizes{4, 3};  // rank 0 sends 3, not 4
    uniResult_t result = uniAllToAllV(send.data(), out.data(), nullptr, recv.data(), in.data(),
                                      nullptr, uniInt32, comm, nullptr);
    if (result == uniSuccess) result = uniBarrier(comm, nullptr);
    EXPECT_EQ(result, uniMismatch) << uniGetLastError(nullptr);
  });
}

TEST(Varying, WrongArgumentsAreNamed) {
  const Ranks world(1, {});
  ASSERT_TRUE(world.ok());
  const uniComm_t comm = world[0];
  std::vector<int32_t> send(8, 1), recv(8, 0);
  const size_t one[] = {4}, huge[] = {SIZE_MAX / 2}, far[] = {SIZE_MAX - 2};
  const auto names = [](uniResult_t result, const char* name) {
    EXPECT_EQ(result, uniInvalidArgument);
    const std::string text = uniGetLastError(nullptr);
    EXPECT_NE(text.find(std::string(name) + ":"), std::string::npos) << text;
  };
  names(uniAllGatherV(send.data(), recv.data(), nullptr, nullptr, uniInt32, comm, nullptr),
        "counts");
  names(uniAllGatherV(send.data(), recv.data(), huge, nullptr, uniInt32, comm, nullptr), "counts");
  names(uniAllGatherV(send.data(), recv.data(), one, far, uniInt32, comm, nullptr), "displs");
  names(uniAllGatherV(nullptr, recv.data(), one, nullptr, uniInt32, comm, nullptr), "send");
  names(uniAllGatherV(send.data(), nullptr, one, nullptr, uniInt32, comm, nullptr), "recv");
  names(uniAllGatherV(recv.data() + 1, recv.data(), one, nullptr, uniInt32, comm, nullptr), "recv");
  names(uniGatherV(send.data(), recv.data(), one, nullptr, uniInt32, 1, comm, nullptr), "root");
  names(
      uniReduceScatterV(send.data(), recv.data(), one, nullptr, uniFloat32, uniBand, comm, nullptr),
      "op");
  names(uniAllToAllV(send.data(), nullptr, nullptr, recv.data(), one, nullptr, uniInt32, comm,
                     nullptr),
        "sendcounts");
  names(uniAllToAllV(send.data(), one, nullptr, recv.data(), nullptr, nullptr, uniInt32, comm,
                     nullptr),
        "recvcounts");
  names(uniAllToAllV(send.data(), one, nullptr, send.data() + 3, one, nullptr, uniInt32, comm,
                     nullptr),
        "recv");
  UNI_OK(uniAllGatherV(send.data(), recv.data(), one, nullptr, uniInt32, comm, nullptr));
  EXPECT_EQ(recv[3], 1);
}

TEST(Varying, WrittenBlocksThatOverlapAreRefusedWithBothRanks) {
  const Ranks world(3, {});
  ASSERT_TRUE(world.ok());
  world.run([](int, uniComm_t comm) {
    const std::vector<int32_t> send(8, 1);
    std::vector<int32_t> recv(32, 0);
    const size_t counts[] = {4, 4, 4}, displs[] = {8, 0, 3};
    EXPECT_EQ(uniAllGatherV(send.data(), recv.data(), counts, displs, uniInt32, comm, nullptr),
              uniInvalidArgument);
    EXPECT_NE(std::string(uniGetLastError(nullptr)).find("ranks 1 and 2 overlap"),
              std::string::npos)
        << uniGetLastError(nullptr);
  });
}

TEST(Varying, OnAStreamTheCountsMayBeReusedAfterTheCall) {
  const Ranks world(3, {});
  ASSERT_TRUE(world.ok());
  world.run([](int rank, uniComm_t comm) {
    uniStream_t stream = nullptr;
    UNI_OK(uniStreamCreate(&stream));
    Sizes counts = {3, 1000, 2};
    const std::vector<int32_t> send =
        block_of(rank, static_cast<size_t>(rank), counts[static_cast<size_t>(rank)]);
    std::vector<int32_t> recv(1005, 0);
    UNI_OK(uniAllGatherV(send.data(), recv.data(), counts.data(), nullptr, uniInt32, comm, stream));
    counts.assign(3, 999'999);
    UNI_OK(uniStreamSynchronize(stream));
    EXPECT_EQ(recv[1003], value(2, 2, 0));
    UNI_OK(uniStreamDestroy(stream));
  });
}

}  // namespace
}  // namespace unisono::testing
