#include "comm/settings.h"

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
