// The results as JSON: what -J writes, what the page shows and what --compare reads.
#pragma once

#include <nlohmann/json.hpp>

namespace bench {

using Json = nlohmann::ordered_json;

}  // namespace bench
