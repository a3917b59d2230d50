// The words of the reducer's errors that several places need.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ddp/reducer/parameter.h"

namespace unisono::ddp {

// "parameter 3 (layer1.weight)".
std::string parameter_label(std::span<const Parameter> parameters, int index);
// "3 (layer1.weight), 4 (layer1.bias) and 12 more": at most five are named.
std::string parameter_list(std::span<const Parameter> parameters, std::span<const int> indices);
// "float32 [64, 3]"; a scalar's shape is [].
std::string shape_text(uniDataType_t type, std::span<const size_t> shape);

}  // namespace unisono::ddp
