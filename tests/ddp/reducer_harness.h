// One rank's model for tests of the reducer: parameters of any type, their gradients as numbers,
// and whole iterations.
#pragma once

#include <bit>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "tests/comm/harness.h"
#include "unisono/ddp.h"

namespace unisono::testing {

struct Spec {
  uniDataType_t type = uniFloat32;
  std::vector<size_t> shape;
  std::string name;
  size_t count() const {
    return std::accumulate(shape.begin(), shape.end(), size_t{1}, std::multiplies<>());
  }
  size_t element_bytes() const { return type == uniFloat64 ? 8 : type == uniFloat32 ? 4 : 2; }
  size_t bytes() const { return count() * element_bytes(); }
};

// All four types; scalars, odd sizes, none at all.
inline std::vector<Spec> mixed_specs() {
  return {{uniFloat32, {7, 3}, "embedding"},
          {uniFloat16, {5}, "half"},
          {uniFloat32, {}, "scalar"},
          {uniBfloat16, {33, 2}, "brain"},
          {uniFloat64, {129}, "double"},
          {uniFloat32, {0, 4}, "empty"},
          {uniFloat16, {1}, ""},
          {uniFloat32, {1000}, "wide"},
          {uniFloat64, {}, "double_scalar"},
          {uniBfloat16, {0}, "empty_brain"},
          {uniFloat16, {257}, "half_2"},
          {uniFloat32, {2, 2, 2}, "cube"}};
}

inline std::vector<Spec> plain_specs(int parameters, size_t count) {
  std::vector<Spec> specs;
  for (int i = 0; i < parameters; i++)
    specs.push_back({uniFloat32, {count}, "p" + std::to_string(i)});
  return specs;
}

// Independent of the library: by the compiler's own type, and by hand.
inline float half_to_float(uint16_t bits, uniDataType_t type) {
  if (type == uniFloat16) return static_cast<float>(std::bit_cast<_Float16>(bits));
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
inline uint16_t float_to_half(float value, uniDataType_t type) {
  if (type == uniFloat16) return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  const uint32_t bits = std::bit_cast<uint32_t>(value), low = bits & 0xffff;
  if (value != value) return 0x7fc0;
  const bool up = low > 0x8000 || (low == 0x8000 && (bits & 0x10000) != 0);
  return static_cast<uint16_t>((bits >> 16) + (up ? 1 : 0));
}

inline uniReducerConfig_t small_buckets(int views = 0) {
  uniReducerConfig_t config = UNI_REDUCER_CONFIG_INITIALIZER;
  config.bucket_bytes = 600;
  config.first_bucket_bytes = 100;
  config.bucket_views = views;
  return config;
}

class Model {
 public:
  Model(uniComm_t comm, std::vector<Spec> specs, const uniReducerConfig_t& config)
      : specs_(std::move(specs)), views_(config.bucket_views != 0) {
    for (const Spec& spec : specs_) {
      owned_.emplace_back(views_ ? 0 : spec.bytes());
    }
    std::vector<uniParameter_t> parameters;
    for (size_t i = 0; i < specs_.size(); i++) {
      const Spec& spec = specs_[i];
      parameters.push_back({spec.name.c_str(), views_ ? nullptr : owned_[i].data(), spec.type,
                            static_cast<int>(spec.shape.size()), spec.shape.data()});
    }
    created_ = uniReducerCreate(&reducer_, comm, parameters.data(),
                                static_cast<int>(parameters.size()), &config);
    words_ = uniGetLastError(nullptr);
  }
  ~Model() { EXPECT_EQ(uniReducerDestroy(reducer_), uniSuccess); }
  Model(const Model&) = delete;

  uniResult_t created() const { return created_; }
  const std::string& words() const { return words_; }  // Of the creation.
  uniReducer_t reducer() const { return reducer_; }
  int count() const { return static_cast<int>(specs_.size()); }
  const Spec& spec(int i) const { return specs_[static_cast<size_t>(i)]; }

  std::byte* gradient(int i) const {
    void* at = nullptr;
    UNI_OK(uniReducerGradient(reducer_, i, &at));
    return static_cast<std::byte*>(at);
  }
  void write(int i, size_t element, double value) const {
    std::byte* at = gradient(i) + element * spec(i).element_bytes();
    const auto single = static_cast<float>(value);
    const uint16_t half =
        spec(i).element_bytes() == 2 ? float_to_half(single, spec(i).type) : uint16_t{0};
    const void* from = &half;
    if (spec(i).type == uniFloat64) from = &value;
    if (spec(i).type == uniFloat32) from = &single;
    std::memcpy(at, from, spec(i).element_bytes());
  }
  double read(int i, size_t element) const {
    const std::byte* at = gradient(i) + element * spec(i).element_bytes();
    double wide = 0;
    float single = 0;
    uint16_t half = 0;
    if (spec(i).type == uniFloat64) return std::memcpy(&wide, at, 8), wide;
    if (spec(i).type == uniFloat32) return std::memcpy(&single, at, 4), single;
    return std::memcpy(&half, at, 2), half_to_float(half, spec(i).type);
  }
  template <class Function>  // double(int parameter, size_t element)
  void fill(Function value) const {
    for (int i = 0; i < count(); i++) fill_one(i, value);
  }
  template <class Function>
  void fill_one(int i, Function value) const {
    for (size_t e = 0; e < spec(i).count(); e++) write(i, e, value(i, e));
  }
  // The first difference in words, or "".
  template <class Function>
  std::string wrong(int i, Function expected) const {
    for (size_t e = 0; e < spec(i).count(); e++) {
      if (read(i, e) == expected(i, e)) continue;
      return spec(i).name + "[" + std::to_string(e) + "]: " + std::to_string(read(i, e)) +
             " instead of " + std::to_string(expected(i, e));
    }
    return "";
  }
  template <class Function>
  std::string wrong(Function expected) const {
    for (int i = 0; i < count(); i++) {
      if (std::string words = wrong(i, expected); !words.empty()) return words;
    }
    return "";
  }

  // Last parameters first, as backward has them.
  std::vector<int> backward_order() const {
    std::vector<int> order(specs_.size());
    std::iota(order.rbegin(), order.rend(), 0);
    return order;
  }
  void mark(const std::vector<int>& order) const {
    for (const int i : order) UNI_OK(uniReducerMarkReady(reducer_, i));
  }
  void iterate(const std::vector<int>& order, int sync = 1) const {
    UNI_OK(uniReducerBeginBackward(reducer_, sync));
    mark(order);
    UNI_OK(uniReducerFinish(reducer_));
  }
  void iterate() const { iterate(backward_order()); }

  uniReducerStats_t stats() const {
    uniReducerStats_t stats{};
    stats.size = sizeof stats;
    UNI_OK(uniReducerStats(reducer_, &stats));
    return stats;
  }
  std::vector<size_t> bucket_bytes() const {
    std::vector<size_t> all(static_cast<size_t>(stats().buckets));
    for (size_t b = 0; b < all.size(); b++) {
      int parameters = 0;
      UNI_OK(uniReducerBucketSize(reducer_, static_cast<int>(b), &all[b], &parameters));
    }
    return all;
  }
  std::vector<int> ready_order() const {
    std::vector<int> order(specs_.size());
    UNI_OK(uniReducerReadyOrder(reducer_, order.data()));
    return order;
  }

 private:
  const std::vector<Spec> specs_;
  const bool views_;
  std::vector<std::vector<std::byte>> owned_;
  uniReducer_t reducer_ = nullptr;
  uniResult_t created_ = uniSuccess;
  std::string words_;
};

// Gradients whose average is exact in every type: n times a small integer k, so that 1/n of it is k
// again, and the sum of all k is small.
inline double small_integer(int rank, int iteration, int parameter, size_t element) {
  return static_cast<double>((static_cast<size_t>(rank) * 7 + static_cast<size_t>(iteration) * 5 +
                              static_cast<size_t>(parameter) * 3 + element) %
                             11) -
         5;
}
inline double gradient_of(int ranks, int rank, int iteration, int parameter, size_t element) {
  return ranks * small_integer(rank, iteration, parameter, element);
}
inline double average_of(int ranks, int iteration, int parameter, size_t element) {
  double sum = 0;
  for (int r = 0; r < ranks; r++) sum += small_integer(r, iteration, parameter, element);
  return sum;
}

inline void fill_iteration(const Model& model, int ranks, int rank, int iteration) {
  model.fill([=](int p, size_t e) { return gradient_of(ranks, rank, iteration, p, e); });
}
inline std::string wrong_iteration(const Model& model, int ranks, int iteration) {
  return model.wrong([=](int p, size_t e) { return average_of(ranks, iteration, p, e); });
}

}  // namespace unisono::testing
