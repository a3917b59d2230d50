#include "transports/sim/sim_options.h"

#include <cmath>
#include <cstdlib>
#include <string>

namespace unisono {
namespace {

// A finite number within [low, high], the whole of `text`.
bool parse_number(const std::string& text, double low, double high, double* value) {
  if (text.empty()) return false;
  char* end = nullptr;
  *value = std::strtod(text.c_str(), &end);
  return *end == '\0' && std::isfinite(*value) && *value >= low && *value <= high;
}

bool parse_seed(const std::string& text, uint64_t* value) {
  if (text.empty() || text.size() > 19) return false;
  *value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    *value = *value * 10 + static_cast<uint64_t>(c - '0');
  }
  return true;
}

bool set_option(const std::string& key, const std::string& text, SimOptions* options) {
  if (key == "seed") return parse_seed(text, &options->seed);
  double value = 0;
  if (!parse_number(text, 0, 1e9, &value)) return false;
  if (key == "latency_us") {
    // Nothing is instantaneous: a message that took no time could be answered within the same
    // instant for ever.
    options->latency_ns = std::max<int64_t>(1, std::llround(value * 1e3));
  } else if (key == "overhead_us") {
    options->overhead_ns = std::llround(value * 1e3);
  } else if (key == "gbps") {
    if (value <= 0) return false;
    options->gigabytes_per_s = value;
  } else if (key == "jitter") {
    options->jitter = value;
  } else if (key == "late") {
    options->late = value != 0;
  } else if (key == "patience_ms") {
    options->patience_ms = std::max<int64_t>(1, std::llround(value));
  } else {
    return false;
  }
  return true;
}

uint64_t mix(uint64_t x) {  // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

Result<SimOptions> parse_sim_options(std::string_view text) {
  SimOptions options;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(",;"), text.size());
    const std::string pair(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    if (equals == std::string::npos ||
        !set_option(pair.substr(0, equals), pair.substr(equals + 1), &options)) {
      return error(Code::kInvalidArgument,
                   "transports: sim does not understand '{}' (it knows seed, latency_us, "
                   "overhead_us, gbps, jitter, late, patience_ms)",
                   pair);
    }
  }
  return options;
}

uint64_t sim_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return mix(mix(mix(mix(a) ^ b) ^ c) ^ d);
}

}  // namespace unisono
