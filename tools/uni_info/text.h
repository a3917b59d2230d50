// uni-info's report in words.
#pragma once

#include <string>

#include "tools/uni_info/gather.h"

namespace unisono::uni_info {

std::string to_text(const Json& all);  // of gather(), and of "job" if that is there

// Its pieces that other files use.
std::string value_text(const Json& value);             // "-" for what is null or empty
void add_job(const Json& job, std::string* out);       // of describe_pairs()
bool add_problem(const Json& part, std::string* out);  // whether there was one

}  // namespace unisono::uni_info
