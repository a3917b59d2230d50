#include "ddp/reducer/description.h"

#include <cstring>

namespace unisono::ddp {
namespace {

uint64_t hook_kind(uniBucketHook_t hook) {
  if (hook == nullptr) return 0;
  if (hook == uniHookAllReduce) return 1;
  if (hook == uniHookFloat16Compress) return 2;
  return hook == uniHookBfloat16Compress ? 3 : 4;
}

void put(std::string* to, uint64_t value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  to->append(bytes, sizeof bytes);
}

bool get(std::string_view* from, uint64_t* value) {
  if (from->size() < sizeof *value) return false;
  std::memcpy(value, from->data(), sizeof *value);
  from->remove_prefix(sizeof *value);
  return true;
}

bool get_parameter(std::string_view* from, Parameter* parameter) {
  uint64_t type = 0, dims = 0, name_bytes = 0;
  if (!get(from, &type) || !get(from, &dims) || type >= uniNumTypes) return false;
  parameter->type = static_cast<uniDataType_t>(type);
  for (uint64_t i = 0; i < dims; i++) {
    uint64_t extent = 0;
    if (!get(from, &extent)) return false;
    parameter->shape.push_back(extent);
  }
  if (!get(from, &name_bytes) || from->size() < name_bytes) return false;
  parameter->name = from->substr(0, name_bytes);
  from->remove_prefix(name_bytes);
  return true;
}

}  // namespace

std::string write_description(std::span<const Parameter> parameters, const Settings& settings) {
  std::string bytes;
  const uint64_t numbers[] = {settings.bucket_bytes,   settings.first_bucket_bytes,
                              settings.bucket_views,   settings.find_unused,
                              settings.static_graph,   settings.keep_buckets,
                              hook_kind(settings.hook)};
  static_assert(std::size(numbers) == kSettingNames.size());
  for (const uint64_t number : numbers) put(&bytes, number);
  for (const Parameter& parameter : parameters) {
    put(&bytes, static_cast<uint64_t>(parameter.type));
    put(&bytes, parameter.shape.size());
    for (const size_t extent : parameter.shape) put(&bytes, extent);
    put(&bytes, parameter.name.size());
    bytes += parameter.name;
  }
  return bytes;
}

std::optional<Description> read_description(std::string_view bytes) {
  Description description;
  for (uint64_t& number : description.settings) {
    if (!get(&bytes, &number)) return std::nullopt;
  }
  while (!bytes.empty()) {
    if (!get_parameter(&bytes, &description.parameters.emplace_back())) return std::nullopt;
  }
  return description;
}

}  // namespace unisono::ddp
