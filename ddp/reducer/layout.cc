#include "ddp/reducer/layout.h"

#include <algorithm>
#include <map>

namespace unisono::ddp {
namespace {

// A bucket begins on a cache line of its own.
constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

struct Open {
  std::vector<int> parameters;
  size_t bytes = 0;
  size_t last_position = 0;
  bool is_first = true;
};

}  // namespace

std::vector<std::vector<int>> assign_buckets(std::span<const Parameter> parameters,
                                             std::span<const int> order, size_t bucket_bytes,
                                             size_t first_bucket_bytes) {
  std::map<uniDataType_t, Open> open;
  std::map<size_t, std::vector<int>> by_last_position;
  for (size_t position = 0; position < order.size(); position++) {
    const Parameter& parameter = parameters[static_cast<size_t>(order[position])];
    Open& bucket = open[parameter.type];
    bucket.parameters.push_back(order[position]);
    bucket.bytes += parameter.bytes();
    bucket.last_position = position;
    if (bucket.bytes < (bucket.is_first ? first_bucket_bytes : bucket_bytes)) continue;
    by_last_position[position] = std::move(bucket.parameters);
    bucket = Open{.is_first = false};
  }
  for (auto& [type, bucket] : open) {
    if (bucket.parameters.empty()) continue;
    by_last_position[bucket.last_position] = std::move(bucket.parameters);
  }
  std::vector<std::vector<int>> assigned;
  for (auto& [position, indices] : by_last_position) assigned.push_back(std::move(indices));
  return assigned;
}

Layout make_layout(std::span<const Parameter> parameters,
                   const std::vector<std::vector<int>>& assigned) {
  Layout layout;
  layout.places.resize(parameters.size());
  for (const std::vector<int>& indices : assigned) {
    Bucket bucket;
    bucket.type = parameters[static_cast<size_t>(indices.front())].type;
    bucket.parameters = indices;
    bucket.offset = layout.bytes;
    for (const int index : indices) {
      layout.places[static_cast<size_t>(index)] = {static_cast<int>(layout.buckets.size()),
                                                   bucket.offset + bucket.bytes()};
      bucket.count += parameters[static_cast<size_t>(index)].count;
    }
    layout.bytes += aligned(bucket.bytes());
    layout.buckets.push_back(std::move(bucket));
  }
  return layout;
}

size_t layout_bytes_at_most(std::span<const Parameter> parameters) {
  size_t bytes = 0;
  for (const Parameter& parameter : parameters) bytes += aligned(parameter.bytes());
  return bytes;
}

}  // namespace unisono::ddp
