#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "unisono/unisono.h"

namespace digits {

// Ends the process: a rank that cannot go on must not leave its peers waiting, and they learn of
// its end at once. Other threads may run, so nothing is destroyed.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> words, Args&&... args) {
  std::fflush(stdout);
  fmt::print(stderr, "ddp-digits: {}\n", fmt::format(words, std::forward<Args>(args)...));
  std::_Exit(1);
}

// Of a call of the library that this thread has just made.
inline void must(uniResult_t result, const char* call) {
  if (result != uniSuccess) fail("{}: {}", call, uniGetLastError(nullptr));
}

}  // namespace digits
