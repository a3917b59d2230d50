// A rank's parameters and settings as bytes, for comparison with another rank's.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp/reducer/parameter.h"
#include "ddp/reducer/settings.h"

namespace unisono::ddp {

// Of the numbers at the front of a description. hook: 0 none, 1 to 3 the built-in ones, 4 a user's.
inline constexpr std::array<const char*, 7> kSettingNames = {
    "bucket_bytes", "first_bucket_bytes", "bucket_views", "find_unused",
    "static_graph", "keep_buckets",       "hook"};

struct Description {
  std::array<uint64_t, kSettingNames.size()> settings{};
  std::vector<Parameter> parameters;
};

std::string write_description(std::span<const Parameter> parameters, const Settings& settings);
// Nothing if the bytes, a peer's, are no description.
std::optional<Description> read_description(std::string_view bytes);

}  // namespace unisono::ddp
