// uni-info's report in words.
#pragma once

#include <string>

#include "tools/uni_info/gather.h"

namespace unisono::uni_info {

std::string to_text(const Json& all);  // of gather()

}  // namespace unisono::uni_info
