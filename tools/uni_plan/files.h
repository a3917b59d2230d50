// Whole files, for the commands that read or write one.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace unisono::uni_plan {

// kInvalidArgument: longer than `most`; kSystemError: unreadable. "-" is standard input.
Result<std::string> read_file(const std::string& path, size_t most);
// Empty path: standard output.
Status write_file(const std::string& path, std::string_view text);

}  // namespace unisono::uni_plan
