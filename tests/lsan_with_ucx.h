// For tests that load UCX, included by their .cc: the leak sanitizer of gcc 12 dies while it walks
// the thread-local storage of UCX's thread ("has encountered a fatal error"), so it leaves such
// storage alone here. glibc's note of the last dlopen error, which hangs there only, then looks
// lost. Nothing of UCX itself is suppressed.
#pragma once

#ifdef __SANITIZE_ADDRESS__
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_options();
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_options() {
  return "use_tls=0";
}
extern "C" const char* __lsan_default_suppressions() {
  return "leak:_dlerror_run\n";
}
#endif
