// Files that the build puts into this program.
#pragma once

#include <string_view>

namespace bench {

std::string_view page_template();  // page.html
std::string_view chart_library();  // Chart.js, minified, with its licence line; empty: not built in

}  // namespace bench
