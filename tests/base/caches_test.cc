#include "base/caches.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace unisono {
namespace {

TEST(Caches, ACoresPartOfTheSharedCacheIsBetweenATinyOneAndAWholeLargeOne) {
  EXPECT_GE(shared_cache_a_core(), uint64_t{64} << 10);
  EXPECT_LE(shared_cache_a_core(), uint64_t{4} << 30);
  EXPECT_EQ(shared_cache_a_core(), shared_cache_a_core());
}

}  // namespace
}  // namespace unisono
