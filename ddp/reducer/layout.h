// Which parameters share a bucket, and where they lie: pure functions, equal on every rank for
// equal arguments.
#pragma once

#include <span>
#include <vector>

#include "ddp/reducer/parameter.h"

namespace unisono::ddp {

struct Bucket {
  uniDataType_t type = uniFloat32;
  std::vector<int> parameters;  // In the order in which they lie, without gaps.
  size_t count = 0;             // Of elements.
  size_t offset = 0;            // In bytes, within the memory of all buckets; aligned.
  size_t bytes() const { return count * element_bytes(type); }
};

struct Place {
  int bucket = 0;
  size_t offset = 0;  // In bytes, within the memory of all buckets.
};

struct Layout {
  std::vector<Bucket> buckets;  // In order of launch.
  std::vector<Place> places;    // Of every parameter.
  size_t bytes = 0;             // Of the memory of all buckets.
};

// Parameters are taken in `order` (in which they are expected to become ready) and added to the
// open bucket of their type, which is closed once it has `bucket_bytes`; the first of each type
// once it has `first_bucket_bytes`. Buckets are then in the order in which they will be complete.
std::vector<std::vector<int>> assign_buckets(std::span<const Parameter> parameters,
                                             std::span<const int> order, size_t bucket_bytes,
                                             size_t first_bucket_bytes);

Layout make_layout(std::span<const Parameter> parameters,
                   const std::vector<std::vector<int>>& assigned);

// Enough for every layout of these parameters.
size_t layout_bytes_at_most(std::span<const Parameter> parameters);

}  // namespace unisono::ddp
