// `uni-plan simulate`: every algorithm that does a collective, at every size, on one topology.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "tools/uni_plan/commands.h"
#include "tools/uni_plan/files.h"
#include "tools/uni_plan/simulator.h"

namespace unisono::uni_plan {
namespace {

constexpr uint64_t kElementBytes = 4;
constexpr uint64_t kMaxSize = uint64_t{1} << 40;
constexpr int64_t kFewFirings = 10'000'000;    // steps times rounds: some seconds
constexpr int64_t kMostFirings = 400'000'000;  // some minutes

struct Column {
  std::string algorithm;
  bool symmetric = false;
  std::string why_not;               // empty: simulated
  std::vector<SimulatedTime> times;  // by size; us < 0: too many rounds
};

Result<uint64_t> parse_size(std::string_view word) {
  uint64_t size = 0;
  const char* const end = word.data() + word.size();
  auto [rest, code] = std::from_chars(word.data(), end, size);
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  const int shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : unit.empty() ? 0 : -1;
  if (code != std::errc() || shift < 0 || size > kMaxSize >> shift)
    return error(Code::kInvalidArgument,
                 "--sizes: '{}' is not a size such as 8K, 1M or 1G (to 1024G)", word);
  return size << shift;
}

// "8K,1M" or "8K-1G" (times four each).
Result<std::vector<uint64_t>> parse_sizes(std::string_view text) {
  std::vector<uint64_t> sizes;
  if (const size_t dash = text.find('-'); dash != std::string_view::npos) {
    TRY_ASSIGN(const uint64_t first, parse_size(text.substr(0, dash)));
    TRY_ASSIGN(const uint64_t last, parse_size(text.substr(dash + 1)));
    if (first < 1 || first > last)
      return error(Code::kInvalidArgument, "--sizes: '{}' is not a range", text);
    for (uint64_t size = first; size <= last; size *= 4) sizes.push_back(size);
    return sizes;
  }
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    TRY_ASSIGN(const uint64_t size, parse_size(text.substr(0, comma)));
    sizes.push_back(size);
    if (comma == text.size()) return sizes;
    text.remove_prefix(comma + 1);
  }
}

std::string size_text(uint64_t size) {
  const char* units[] = {"", "K", "M", "G"};
  int unit = 0;
  for (; unit < 3 && size >= 1024 && size % 1024 == 0; ++unit) size /= 1024;
  return fmt::format("{}{}", size, units[unit]);
}

std::string time_text(const SimulatedTime& time) {
  if (time.us < 0) return "-";
  const char* about = time.simulated < time.rounds ? "~" : "";
  return time.us < 1e4   ? fmt::format("{}{:.1f}us", about, time.us)
         : time.us < 1e7 ? fmt::format("{}{:.2f}ms", about, time.us / 1e3)
                         : fmt::format("{}{:.2f}s", about, time.us / 1e6);
}

Column simulate_column(const std::string& name, const Result<Program>& program,
                       const SimulateOptions& options, const std::vector<uint64_t>& sizes) {
  Column column;
  column.algorithm = name;
  if (!program.ok()) {
    column.why_not = program.status().message();
    return column;
  }
  column.symmetric = program->symmetric();
  const auto steps = std::max<int64_t>(1, static_cast<int64_t>(program->steps.size()));
  const SimulatorOptions simulator{
      .calls = options.calls,
      .most_rounds = options.most_rounds > 0
                         ? options.most_rounds
                         : static_cast<uint64_t>(std::clamp<int64_t>(kFewFirings / steps, 16, 96))};
  for (const uint64_t size : sizes) {
    SimulatedCall call{.elements = size / kElementBytes, .element_bytes = kElementBytes};
    if (program->rule == BlockRule::kWhole) call.elements /= static_cast<uint64_t>(program->ranks);
    const uint64_t rounds =
        std::min(simulator.most_rounds, rounds_of(*program, options.topology, call));
    const auto firings = static_cast<int64_t>(rounds * options.calls);
    if (firings > kMostFirings / steps) {
      column.times.push_back({.us = -1});
    } else {
      column.times.push_back(simulate_call(*program, options.topology, call, simulator));
    }
  }
  return column;
}

// The fastest of each size; -1: none was simulated.
std::vector<int> winners(const std::vector<Column>& columns, size_t sizes) {
  std::vector<int> best(sizes, -1);
  for (size_t s = 0; s < sizes; ++s) {
    for (size_t c = 0; c < columns.size(); ++c) {
      if (!columns[c].why_not.empty() || columns[c].times[s].us < 0) continue;
      if (best[s] < 0 || columns[c].times[s].us < columns[static_cast<size_t>(best[s])].times[s].us)
        best[s] = static_cast<int>(c);
    }
  }
  return best;
}

std::string winner_name(const std::vector<Column>& columns, int winner) {
  return winner < 0 ? "none" : columns[static_cast<size_t>(winner)].algorithm;
}

std::string table(const std::vector<uint64_t>& sizes, const std::vector<Column>& columns) {
  std::string text = fmt::format("{:>8}", "size");
  auto out = std::back_inserter(text);
  const auto width = [](const Column& column) {
    return std::max<size_t>(column.algorithm.size(), 10) + 2;
  };
  for (const Column& column : columns)
    if (column.why_not.empty()) fmt::format_to(out, "{:>{}}", column.algorithm, width(column));
  text += "  fastest\n";
  const std::vector<int> best = winners(columns, sizes.size());
  for (size_t s = 0; s < sizes.size(); ++s) {
    fmt::format_to(out, "{:>8}", size_text(sizes[s]));
    for (const Column& column : columns)
      if (column.why_not.empty())
        fmt::format_to(out, "{:>{}}", time_text(column.times[s]), width(column));
    fmt::format_to(out, "  {}\n", winner_name(columns, best[s]));
  }
  for (size_t first = 0, s = 1; s <= sizes.size(); ++s) {
    if (s < sizes.size() && best[s] == best[first]) continue;
    fmt::format_to(out, "{} to {}: {} wins\n", size_text(sizes[first]), size_text(sizes[s - 1]),
                   winner_name(columns, best[first]));
    first = s;
  }
  for (const Column& column : columns) {
    if (!column.why_not.empty())
      fmt::format_to(out, "{}: not simulated: {}\n", column.algorithm, column.why_not);
    if (column.symmetric)
      fmt::format_to(out, "{}: one period of ranks stands for all\n", column.algorithm);
  }
  text += "~: the last rounds at the pace of those simulated; -: too many steps\n";
  return text;
}

std::string json_text(const Topology& topology, const std::string& collective,
                      const std::vector<uint64_t>& sizes, const std::vector<Column>& columns) {
  using nlohmann::ordered_json;
  ordered_json json = {{"collective", collective},
                       {"ranks", topology.ranks()},
                       {"topology", ordered_json::parse(topology_json(topology))}};
  const std::vector<int> best = winners(columns, sizes.size());
  json["sizes"] = ordered_json::array();
  for (size_t s = 0; s < sizes.size(); ++s)
    json["sizes"].push_back({{"bytes", sizes[s]}, {"fastest", winner_name(columns, best[s])}});
  json["algorithms"] = ordered_json::array();
  for (const Column& column : columns) {
    ordered_json one = {{"name", column.algorithm}, {"symmetric", column.symmetric}};
    if (!column.why_not.empty()) one["not_simulated"] = column.why_not;
    one["times"] = ordered_json::array();
    for (const SimulatedTime& time : column.times) {
      ordered_json row = {{"us", time.us}, {"rounds", time.rounds}, {"simulated", time.simulated}};
      if (time.us < 0) row = nullptr;
      one["times"].push_back(std::move(row));
    }
    json["algorithms"].push_back(std::move(one));
  }
  return json.dump(1) + "\n";
}

// The algorithms wanted, or all that do the collective.
Result<std::vector<Column>> simulate_algorithms(const SimulateOptions& options,
                                                const std::vector<uint64_t>& sizes) {
  const std::vector<int32_t> host_of = options.topology.host_of_ranks();
  PlanRequest request{.ranks = options.topology.ranks(), .root = options.root, .multicast = false};
  TRY_ASSIGN(request.collective, collective_of(options.collective));
  if (host_of.back() > 0) request.hosts = host_of;
  if (request.root < 0 || request.root >= request.ranks)
    return error(Code::kInvalidArgument, "root {} is not one of {} ranks", request.root,
                 request.ranks);
  std::vector<Column> columns;
  const std::vector<std::string>& wanted = options.algorithms;
  for (const Algorithm& row : algorithms()) {
    const bool is_wanted = wanted.empty() || std::count(wanted.begin(), wanted.end(), row.name) > 0;
    if (!is_wanted || !row.supports(request)) continue;
    const auto program =
        compile_program(row.name, request, options.topology, {.whole = options.whole});
    columns.push_back(simulate_column(row.name, program, options, sizes));
  }
  for (const std::string& name : wanted) {
    const auto found = std::find_if(columns.begin(), columns.end(),
                                    [&](const Column& column) { return column.algorithm == name; });
    if (found == columns.end()) return build_plan(name, request).status();  // says which do
  }
  return columns;
}

Result<std::vector<Column>> simulate_file(const SimulateOptions& options,
                                          const std::vector<uint64_t>& sizes,
                                          std::string* collective) {
  TRY_ASSIGN(const std::vector<Plan> plans, plans_of_file(options.plan_file));
  const Plan& any = plans.front();
  if (any.ranks != options.topology.ranks())
    return error(Code::kInvalidArgument, "'{}' is for {} ranks, the topology has {}",
                 options.plan_file, any.ranks, options.topology.ranks());
  *collective = collective_name(any.collective);
  std::vector<Column> columns;
  columns.push_back(simulate_column(any.algorithm, compile_plans(plans), options, sizes));
  return columns;
}

}  // namespace

Status simulate(const SimulateOptions& options) {
  TRY(options.topology.check());
  TRY_ASSIGN(const std::vector<uint64_t> sizes, parse_sizes(options.sizes));
  std::string collective = options.collective;
  TRY_ASSIGN(const std::vector<Column> columns, options.plan_file.empty()
                                                    ? simulate_algorithms(options, sizes)
                                                    : simulate_file(options, sizes, &collective));
  return write_file(options.file, options.json
                                      ? json_text(options.topology, collective, sizes, columns)
                                      : table(sizes, columns));
}

}  // namespace unisono::uni_plan
