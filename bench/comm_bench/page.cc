#include "bench/comm_bench/page.h"

#include <string_view>

#include "bench/comm_bench/embedded.h"

namespace bench {
namespace {

// Puts `text` in the place of the one `mark`.
void put(std::string* page, std::string_view mark, std::string_view text) {
  const size_t at = page->find(mark);
  if (at != std::string::npos) page->replace(at, mark.size(), text);
}

// Within a script element only '<' can end it or start a comment; in JSON it stands in strings
// only, where it may be written so.
std::string for_script(const std::string& json) {
  std::string safe;
  for (const char c : json) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

std::string to_text(const Json& all, int indent) {
  return all.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string make_page(const Json& all) {
  std::string page(page_template());
  // The data last: what stands in it is not searched.
  put(&page, "/*CHART_LIBRARY*/", chart_library());
  put(&page, "{\"data\": null}", for_script(to_text(all, 1)));
  return page;
}

}  // namespace bench
