#include "comm/bootstrap/host_list.h"

#include <charconv>
#include <cstdint>

namespace unisono::bootstrap {
namespace {

constexpr size_t kMaxHosts = 100'000;
constexpr size_t kMaxDigits = 9;

using Names = std::vector<std::string>;

bool parse_number(std::string_view text, uint32_t* number) {
  if (text.empty() || text.size() > kMaxDigits) return false;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return code == std::errc() && end == text.data() + text.size();
}

// "01-03" or "7": as wide as its first number is written.
bool expand_range(std::string_view range, Names* numbers) {
  const size_t dash = std::min(range.find('-'), range.size());
  const std::string_view first_text = range.substr(0, dash);
  uint32_t first = 0, last = 0;
  if (!parse_number(first_text, &first)) return false;
  last = first;
  if (dash < range.size() && !parse_number(range.substr(dash + 1), &last)) return false;
  if (last < first || last - first >= kMaxHosts) return false;
  for (uint32_t number = first; number <= last; ++number) {
    numbers->push_back(fmt::format("{:0{}}", number, first_text.size()));
  }
  return numbers->size() <= kMaxHosts;
}

bool expand_ranges(std::string_view ranges, Names* numbers) {
  for (;;) {
    const size_t comma = std::min(ranges.find(','), ranges.size());
    if (!expand_range(ranges.substr(0, comma), numbers)) return false;
    if (comma == ranges.size()) return true;
    ranges.remove_prefix(comma + 1);
  }
}

// The first item of `list`, with as many brackets as it has, is taken off.
bool expand_item(std::string_view* list, Names* names) {
  Names stems{""};
  while (!list->empty() && list->front() != ',') {
    Names parts;
    if (list->front() == '[') {
      const size_t end = list->find(']');
      if (end == std::string_view::npos || !expand_ranges(list->substr(1, end - 1), &parts)) {
        return false;
      }
      list->remove_prefix(end + 1);
    } else {
      const size_t end = std::min(list->find_first_of("[,]"), list->size());
      if (end == 0) return false;  // a closing bracket alone
      parts.emplace_back(list->substr(0, end));
      list->remove_prefix(end);
    }
    if (stems.size() * parts.size() > kMaxHosts) return false;
    Names longer;
    for (const std::string& stem : stems) {
      for (const std::string& part : parts) longer.push_back(stem + part);
    }
    stems = std::move(longer);
  }
  if (stems.front().empty() || names->size() + stems.size() > kMaxHosts) return false;
  names->insert(names->end(), stems.begin(), stems.end());
  return true;
}

}  // namespace

Result<Names> expand_host_list(std::string_view list) {
  const std::string_view whole = list;
  Names names;
  for (;;) {
    if (!expand_item(&list, &names)) {
      return error(Code::kInvalidArgument, "'{}' is not a list of hosts", whole);
    }
    if (list.empty()) return names;
    list.remove_prefix(1);  // the comma
  }
}

}  // namespace unisono::bootstrap
