#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "unisono/unisono.h"

namespace digits {

// Ends the process: a rank that cannot go on must not leave its peers waiting, and they learn of
// its end at once. Other threads may run, so nothing is destroyed.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> words, Args&&... args) {
  std::fflush(stdout);
  // Nor is fmt::print used: it throws where it cannot write.
  const std::string text = fmt::format(words, std::forward<Args>(args)...);
  std::fprintf(stderr, "ddp-digits: %s\n", text.c_str());
  std::_Exit(1);
}

// To stdout. A full disk is found at the end, by said_all.
template <class... Args>
void say(fmt::format_string<Args...> words, Args&&... args) {
  const std::string text = fmt::format(words, std::forward<Args>(args)...);
  (void)std::fwrite(text.data(), 1, text.size(), stdout);
}

// Whether all that this process has said was written; else says so on stderr.
inline bool said_all() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  std::fprintf(stderr, "ddp-digits: standard output: %s\n",
               errno != 0 ? std::strerror(errno) : "cannot be written");
  return false;
}

// Of a call of the library that this thread has just made.
inline void must(uniResult_t result, const char* call) {
  if (result != uniSuccess) fail("{}: {}", call, uniGetLastError(nullptr));
}

}  // namespace digits
