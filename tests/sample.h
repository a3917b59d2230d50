// How much of its tables a test runs: a sample, or the whole (UNISONO_TEST_FULL=1). Built with a
// sanitizer or for coverage, or on an emulated processor (UNISONO_TEST_SMALL=1, set by
// tools/avx512-check), where everything takes ten times as long and more, a smaller sample: one run
// of each path finds what there is to be found. Never chosen by how long something took.
#pragma once

#include <cstdlib>
#include <string_view>

namespace unisono::testing {

#ifdef UNISONO_INSTRUMENTED
inline constexpr bool kInstrumented = true;
#else
inline constexpr bool kInstrumented = false;
#endif

inline bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}
inline bool full() {
  return is_set("UNISONO_TEST_FULL");
}

// The one of the three that is to run.
template <class T>
T sampled(T whole, T sample, T instrumented) {
  if (full()) return whole;
  return kInstrumented || is_set("UNISONO_TEST_SMALL") ? instrumented : sample;
}

}  // namespace unisono::testing
