#include "ddp/reducer/messages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace unisono::ddp {
namespace {

constexpr size_t kNamedAtMost = 5;

std::string with_name(std::span<const Parameter> parameters, int index) {
  const std::string& name = parameters[static_cast<size_t>(index)].name;
  return name.empty() ? std::to_string(index) : fmt::format("{} ({})", index, name);
}

}  // namespace

std::string parameter_label(std::span<const Parameter> parameters, int index) {
  return "parameter " + with_name(parameters, index);
}

std::string parameter_list(std::span<const Parameter> parameters, std::span<const int> indices) {
  std::vector<std::string> named;
  for (const int index : indices.first(std::min(indices.size(), kNamedAtMost))) {
    named.push_back(with_name(parameters, index));
  }
  std::string text = fmt::format("{} {}", indices.size() == 1 ? "parameter" : "parameters",
                                 fmt::join(named, ", "));
  if (indices.size() > kNamedAtMost)
    text += fmt::format(" and {} more", indices.size() - named.size());
  return text;
}

std::string shape_text(uniDataType_t type, std::span<const size_t> shape) {
  return fmt::format("{} [{}]", gradient_type_name(type), fmt::join(shape, ", "));
}

}  // namespace unisono::ddp
