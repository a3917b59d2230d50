#include "bench/comm_bench/embedded.h"

// PAGE_HTML and CHART_JS are names of files, from CMakeLists.txt.
#define EMBED(name, file)                                                                   \
  asm(".pushsection .rodata\n"                                                              \
      ".hidden " #name "_begin\n.global " #name "_begin\n" #name "_begin:\n.incbin \"" file \
      "\"\n"                                                                                \
      ".hidden " #name "_end\n.global " #name "_end\n" #name                                \
      "_end:\n.byte 0\n"                                                                    \
      ".popsection\n");                                                                     \
  extern "C" __attribute__((visibility("hidden"))) const char name##_begin[];               \
  extern "C" __attribute__((visibility("hidden"))) const char name##_end[]

EMBED(bench_page, PAGE_HTML);
#ifdef CHART_JS
EMBED(bench_chart, CHART_JS);
#endif

namespace bench {
namespace {

std::string_view between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

std::string_view page_template() {
  return between(bench_page_begin, bench_page_end);
}

std::string_view chart_library() {
#ifdef CHART_JS
  return between(bench_chart_begin, bench_chart_end);
#else
  return {};
#endif
}

}  // namespace bench
