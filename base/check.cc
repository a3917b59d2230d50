#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace unisono {

void check_failed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "unisono: %s:%d: invariant broken: %s\n", file, line, expression);
  std::abort();
}

}  // namespace unisono
