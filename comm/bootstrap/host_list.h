// Slurm's lists of hosts: "node[01-03,7],login".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace unisono::bootstrap {

// All names in order. kInvalidArgument, which quotes the list, if it is none or names more than
// 100,000 hosts. Pure.
Result<std::vector<std::string>> expand_host_list(std::string_view list);

}  // namespace unisono::bootstrap
