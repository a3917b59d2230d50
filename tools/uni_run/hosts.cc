#include "tools/uni_run/hosts.h"

#include <algorithm>
#include <charconv>

namespace unisono::uni_run {
namespace {

constexpr int kMaxSlots = 4096;
constexpr std::string_view kBlanks = " \t\r";

std::string_view next_word(std::string_view* text) {
  text->remove_prefix(std::min(text->find_first_not_of(kBlanks), text->size()));
  const size_t end = std::min(text->find_first_of(kBlanks), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(end);
  return word;
}

bool parse_slots(std::string_view text, int* slots) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), *slots);
  return code == std::errc() && end == text.data() + text.size() && *slots >= 1 &&
         *slots <= kMaxSlots;
}

// "NAME", "NAME:N" or "[IPv6]:N".
Result<HostSlots> parse_host(std::string_view word) {
  HostSlots host;
  std::string_view name = word;
  const size_t colon = word.rfind(':');
  const bool bracketed = word.find(']') != std::string_view::npos;
  const bool one_colon = colon != std::string_view::npos && word.find(':') == colon;
  if (one_colon || (bracketed && colon != std::string_view::npos && colon > word.rfind(']'))) {
    name = word.substr(0, colon);
    if (!parse_slots(word.substr(colon + 1), &host.slots)) {
      return error(Code::kInvalidArgument, "'{}' is not NAME:SLOTS with 1 to {} slots", word,
                   kMaxSlots);
    }
  }
  for (const char c : name) {
    if (c != '[' && c != ']') host.name += c;
  }
  // ssh would take a name that begins with a dash for an option.
  if (host.name.empty() || host.name.front() == '-') {
    return error(Code::kInvalidArgument, "'{}' is no name of a host", word);
  }
  return host;
}

Result<HostSlots> parse_line(std::string_view line) {
  TRY_ASSIGN(HostSlots host, parse_host(next_word(&line)));
  for (std::string_view word = next_word(&line); !word.empty(); word = next_word(&line)) {
    constexpr std::string_view kSlots = "slots=";
    if (word.substr(0, kSlots.size()) != kSlots ||
        !parse_slots(word.substr(kSlots.size()), &host.slots)) {
      return error(Code::kInvalidArgument, "'{}' is not slots=N with N from 1 to {}", word,
                   kMaxSlots);
    }
  }
  return host;
}

}  // namespace

Result<std::vector<HostSlots>> parse_host_file(std::string_view text, std::string_view file) {
  std::vector<HostSlots> hosts;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(kBlanks) == std::string_view::npos) continue;
    auto host = parse_line(line);
    if (!host.ok()) return host.status().annotate(fmt::format("{}:{}", file, number));
    hosts.push_back(std::move(*host));
  }
  if (hosts.empty()) return error(Code::kInvalidArgument, "{}: names no host", file);
  return hosts;
}

Result<std::vector<HostSlots>> parse_host_list(std::string_view list) {
  std::vector<HostSlots> hosts;
  for (;;) {
    const size_t comma = std::min(list.find(','), list.size());
    auto host = parse_host(list.substr(0, comma));
    if (!host.ok()) return host.status().annotate("-H");
    hosts.push_back(std::move(*host));
    if (comma == list.size()) return hosts;
    list.remove_prefix(comma + 1);
  }
}

Result<std::vector<HostSlots>> place_ranks(const std::vector<HostSlots>& hosts, int ranks) {
  std::vector<HostSlots> placed;
  int slots = 0;
  for (HostSlots host : hosts) {
    const int left = ranks - slots;
    slots += host.slots;
    if (ranks > 0) host.slots = std::min(host.slots, left);
    if (host.slots > 0) placed.push_back(std::move(host));
  }
  if (slots < ranks) {
    return error(Code::kInvalidArgument, "-n: {} ranks, but the hosts have {} slots", ranks, slots);
  }
  return placed;
}

std::string address_of(const HostSlots& host) {
  const size_t at = host.name.rfind('@');
  return at == std::string::npos ? host.name : host.name.substr(at + 1);
}

}  // namespace unisono::uni_run
