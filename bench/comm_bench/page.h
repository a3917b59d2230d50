// The results as one page that needs nothing else: no network, no other file.
#pragma once

#include <string>

#include "bench/comm_bench/json.h"

namespace bench {

// `all` is what -J writes. Plots are Chart.js's, which the build put into this program; a build
// without it gives a page of tables that says so.
std::string make_page(const Json& all);
// As JSON; bytes that are no UTF-8 (a host's name) are replaced. indent -1: one line.
std::string to_text(const Json& all, int indent);

}  // namespace bench
