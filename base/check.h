// CHECK: an invariant of this library, always on. Never for a peer's bytes or a caller's arguments:
// those are input.
#pragma once

namespace unisono {
// Prints where and what to standard error and aborts the process.
[[noreturn]] void check_failed(const char* file, int line, const char* expression);
}  // namespace unisono

#define CHECK(condition)                                       \
  do {                                                         \
    if (__builtin_expect(!(condition), 0))                     \
      ::unisono::check_failed(__FILE__, __LINE__, #condition); \
  } while (0)
