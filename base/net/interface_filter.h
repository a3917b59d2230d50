// InterfaceFilter: what UNISONO_INTERFACES says: patterns of names, comma-separated, that alone are
// used, or after a '^' are not. Empty: all are. Pure.
#pragma once

#include <fnmatch.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::net {

class InterfaceFilter {
 public:
  explicit InterfaceFilter(std::string_view text) {
    if (!text.empty() && text.front() == '^') {
      exclude_ = true;
      text.remove_prefix(1);
    }
    while (!text.empty()) {
      const size_t comma = std::min(text.find(','), text.size());
      if (comma > 0) patterns_.emplace_back(text.substr(0, comma));
      text.remove_prefix(std::min(comma + 1, text.size()));
    }
  }

  bool allows(const std::string& name) const {
    return patterns_.empty() || (matching(name) != nullptr) != exclude_;
  }
  // Named by a pattern, not just let through.
  bool asks_for(const std::string& name) const { return !exclude_ && matching(name) != nullptr; }
  // The first pattern that matches, or null.
  const std::string* matching(const std::string& name) const {
    const auto found =
        std::find_if(patterns_.begin(), patterns_.end(), [&](const std::string& pattern) {
          return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
        });
    return found == patterns_.end() ? nullptr : &*found;
  }

 private:
  bool exclude_ = false;
  std::vector<std::string> patterns_;
};

}  // namespace unisono::net
