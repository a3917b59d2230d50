// The job in words: who the ranks are, what joins each pair, and why.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tools/uni_info/text.h"

namespace unisono::uni_info {
namespace {

constexpr size_t kWidestMatrix = 32;  // ranks; above, the reasons alone
constexpr size_t kMostNamed = 8;      // pairs of one reason

void add_matrix(const Json& job, std::string* out) {
  const size_t ranks = job["ranks"].size();
  if (ranks > kWidestMatrix) {
    *out += fmt::format("  (the matrix of {} ranks is in --json)\n", ranks);
    return;
  }
  std::vector<std::vector<std::string>> cells(ranks, std::vector<std::string>(ranks, "-"));
  size_t width = 5;
  for (const Json& pair : job["pairs"]) {
    const auto a = pair["ranks"][0].get<size_t>(), b = pair["ranks"][1].get<size_t>();
    cells[a][b] = cells[b][a] = value_text(pair["transport"]);
    width = std::max(width, cells[a][b].size() + 1);
  }
  *out += "  rank ";
  for (size_t rank = 0; rank < ranks; ++rank) *out += fmt::format("{:>{}}", rank, width);
  *out += "\n";
  for (size_t rank = 0; rank < ranks; ++rank) {
    *out += fmt::format("  {:>4} ", rank);
    for (const std::string& cell : cells[rank]) *out += fmt::format("{:>{}}", cell, width);
    *out += "\n";
  }
}

struct Reason {
  std::string text;
  std::vector<std::string> pairs;
};

void add_reasons(const Json& job, std::string* out) {
  std::vector<Reason> reasons;
  for (const Json& pair : job["pairs"]) {
    const std::string text =
        fmt::format("{}: {}", value_text(pair["transport"]), value_text(pair["why"]));
    auto found = std::find_if(reasons.begin(), reasons.end(),
                              [&](const Reason& known) { return known.text == text; });
    if (found == reasons.end()) found = reasons.insert(reasons.end(), {text, {}});
    found->pairs.push_back(
        fmt::format("{}-{}", pair["ranks"][0].get<size_t>(), pair["ranks"][1].get<size_t>()));
  }
  for (const Reason& reason : reasons) {
    std::string names;
    const size_t named = std::min(reason.pairs.size(), kMostNamed);
    for (size_t i = 0; i < named; ++i) names += (i > 0 ? " " : "") + reason.pairs[i];
    if (named < reason.pairs.size()) {
      names += fmt::format(" and {} more", reason.pairs.size() - named);
    }
    *out += fmt::format("  {}\n    pairs {}\n", reason.text, names);
  }
}

}  // namespace

void add_job(const Json& job, std::string* out) {
  if (add_problem(job, out)) return;
  *out += fmt::format("  transports in order of preference: {}\n", value_text(job["order"]));
  for (const Json& rank : job["ranks"]) {
    *out += fmt::format("  rank {}: pid {} on {}, {} rank(s) share its memory, uses {}\n",
                        rank["rank"].get<int>(), rank["pid"].get<int>(), value_text(rank["host"]),
                        rank["ranks_sharing_memory"].get<int>(), value_text(rank["transports"]));
  }
  add_matrix(job, out);
  add_reasons(job, out);
}

}  // namespace unisono::uni_info
