#include "comm/settings.h"

#include <charconv>

#include "transports/collective_provider.h"
#include "transports/registry.h"

namespace unisono {

std::string Settings::transports_text() const {
  std::string text;
  for (const TransportChoice& choice : transports) {
    if (!text.empty()) text += ',';
    text += choice.name;
    if (!choice.options.empty()) text += ':' + choice.options;
  }
  return text;
}

Status parse_device(const std::string& text, Settings* settings) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string kind = text.substr(0, colon);
  settings->device.clear();
  settings->device_index = -1;
  if (text == "cpu") return {};
  const char* const end = text.data() + text.size();
  const bool indexed = colon < text.size();
  if (indexed) {
    const auto read = std::from_chars(text.data() + colon + 1, end, settings->device_index);
    if (read.ec != std::errc() || read.ptr != end || settings->device_index < 0) {
      return error(Code::kInvalidArgument, "config.device: '{}' has no index after the colon",
                   text);
    }
  }
  if (find_provider(kind) == nullptr) {
    std::string known = "cpu";
    for (const ProviderEntry& entry : provider_registry()) {
      known += fmt::format(", {}, {}:INDEX", entry.device, entry.device);
    }
    return error(Code::kInvalidArgument, "config.device: '{}' is unknown (there are: {})", text,
                 known);
  }
  settings->device = kind;
  return {};
}

Result<std::vector<TransportChoice>> parse_transports(const std::string& text) {
  std::vector<TransportChoice> choices;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    at = end + 1;
    const size_t colon = item.find(':');
    const bool is_option = colon == std::string::npos && item.find('=') != std::string::npos;
    if (is_option && !choices.empty()) {
      choices.back().options += ',' + item;
      continue;
    }
    TransportChoice choice;
    choice.name = item.substr(0, colon);
    if (colon != std::string::npos) choice.options = item.substr(colon + 1);
    if (find_transport(choice.name) == nullptr || choice.name == "self") {
      std::string known;
      for (const TransportEntry& entry : transport_registry()) {
        if (std::string_view(entry.name) == "self") continue;
        known += known.empty() ? entry.name : fmt::format(", {}", entry.name);
      }
      return error(Code::kInvalidArgument,
                   "transports: unknown transport '{}' in '{}' (there are: {})", choice.name, text,
                   known);
    }
    choices.push_back(choice);
  }
  return choices;
}

}  // namespace unisono
