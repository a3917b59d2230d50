#include "tools/uni_plan/commands.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <vector>

#include "algorithms/verify/verify.h"
#include "tools/uni_plan/text.h"

namespace unisono::uni_plan {
namespace {

constexpr int32_t kMaxRanks = 1 << 15;  // a plan numbers its channels in 16 bits

// All roots and both kinds of channels; *proved counts.
Status verify_one(const Algorithm& row, PlanRequest request, int64_t* proved) {
  const int32_t roots = has_root(request.collective) ? request.ranks : 1;
  for (const bool multicast : {true, false}) {
    request.multicast = multicast;
    for (request.root = 0; request.root < roots; ++request.root) {
      request.rank = 0;
      if (!row.supports(request)) continue;
      TRY_ASSIGN(const std::vector<Plan> plans, plans_of_all_ranks(row.name, request));
      const Status status = verify_plans(plans, {.multicast = multicast});
      if (!status.ok())
        return status.annotate(fmt::format("{} {}, {} ranks, root {}, {} multicast", row.name,
                                           collective_name(request.collective), request.ranks,
                                           request.root, multicast ? "with" : "without"));
      ++*proved;
    }
  }
  return ok_status();
}

}  // namespace

void say(const std::string& text) {
  std::fputs(text.c_str(), stdout);
}

Result<Collective> collective_of(const std::string& name) {
  Collective collective{};
  if (parse_collective(name, &collective)) return collective;
  std::string names;
  for (int i = 0; i < kCollectives; ++i)
    names += fmt::format("{}{}", i == 0 ? "" : ", ", collective_name(static_cast<Collective>(i)));
  if (name.empty())
    return error(Code::kInvalidArgument, "--collective: which one? There are: {}", names);
  return error(Code::kInvalidArgument, "no collective is called '{}'; there are: {}", name, names);
}

Result<std::vector<Plan>> plans_of_all_ranks(const std::string& algorithm, PlanRequest request) {
  std::vector<Plan> plans;
  for (request.rank = 0; request.rank < request.ranks; ++request.rank) {
    TRY_ASSIGN(Plan plan, build_plan(algorithm, request));
    plans.push_back(std::move(plan));
  }
  return plans;
}

Status print(const PrintOptions& options) {
  PlanRequest request = options.request;
  if (request.ranks < 1)
    return error(Code::kInvalidArgument, "--ranks or --hosts: how many ranks is the plan for?");
  TRY_ASSIGN(request.collective, collective_of(options.collective));
  std::vector<Plan> plans;
  if (options.rank) {
    request.rank = *options.rank;
    TRY_ASSIGN(Plan plan, build_plan(options.algorithm, request));
    plans.push_back(std::move(plan));
  } else {
    TRY_ASSIGN(plans, plans_of_all_ranks(options.algorithm, request));
  }
  std::string text;
  if (options.json) text = to_json(plans);
  for (const Plan& plan : plans)
    if (!options.json) text += to_text(plan, options.unroll);
  say(text);
  return ok_status();
}

void list() {
  say(fmt::format("{:<20} {:<14} {:<10} {:<6} {}\n", "algorithm", "collective", "cost at 8",
                  "flags", "paper"));
  for (const Algorithm& row : algorithms()) {
    for (int i = 0; i < kCollectives; ++i) {
      PlanRequest request{.collective = static_cast<Collective>(i), .ranks = 8};
      if (!row.supports(request)) continue;
      const Cost cost = row.cost(request);
      const std::string flags = fmt::format("{}{}{}", row.reproducible ? 'r' : '-',
                                            row.late ? 'l' : '-', row.pipelines ? 'p' : '-');
      say(fmt::format(
          "{:<20} {:<14} {:<10} {:<6} {}\n", row.name, collective_name(request.collective),
          fmt::format("{:.0f}a {:.2f}b", cost.messages, cost.wire_bytes), flags, row.paper));
    }
  }
  say(fmt::format(
      "cost: a = start-ups, b = bytes on the wire a rank, of the size; flags: r = reproducible, "
      "l = late mode, p = pipelines\n"));
}

Status parse_ranks(const std::string& text, VerifySelection* selection) {
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, selection->first_ranks);
  selection->last_ranks = selection->first_ranks;
  auto last = first;
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == '-')
    last = std::from_chars(first.ptr + 1, end, selection->last_ranks);
  const bool good = first.ec == std::errc() && last.ec == std::errc() && last.ptr == end &&
                    selection->first_ranks >= 1 && selection->last_ranks <= kMaxRanks &&
                    selection->first_ranks <= selection->last_ranks;
  if (good) return ok_status();
  return error(Code::kInvalidArgument,
               "'{}' is not a number of ranks or a range such as 1-17, "
               "from 1 to {}",
               text, kMaxRanks);
}

Status parse_hosts(const std::string& text, std::vector<int32_t>* hosts) {
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int32_t host = 0;; ++host) {
    int32_t count = 0;
    const auto [next, problem] = std::from_chars(at, end, count);
    const bool good = problem == std::errc() && (next == end || *next == ',') && count >= 1 &&
                      static_cast<size_t>(count) <= kMaxRanks - hosts->size();
    if (!good)
      return error(Code::kInvalidArgument,
                   "'{}' is not a list of ranks on each host such as 3,2, {} ranks at most", text,
                   kMaxRanks);
    hosts->insert(hosts->end(), static_cast<size_t>(count), host);
    if (next == end) return ok_status();
    at = next + 1;
  }
}

Status verify(const VerifySelection& selection) {
  if (!selection.algorithm.empty() && find_algorithm(selection.algorithm) == nullptr)
    return build_plan(selection.algorithm, {}).status();  // says which there are
  std::optional<Collective> only;
  if (!selection.collective.empty()) {
    TRY_ASSIGN(only, collective_of(selection.collective));
  }
  int64_t all_proved = 0;
  for (const Algorithm& row : algorithms()) {
    if (!selection.algorithm.empty() && selection.algorithm != row.name) continue;
    for (int i = 0; i < kCollectives; ++i) {
      const Collective collective = static_cast<Collective>(i);
      if (only && *only != collective) continue;
      int64_t proved = 0;
      for (int32_t ranks = selection.first_ranks; ranks <= selection.last_ranks; ++ranks)
        TRY(verify_one(row, {.collective = collective, .ranks = ranks, .hosts = selection.hosts},
                       &proved));
      if (proved > 0)
        say(fmt::format("{} {}: {} proved\n", row.name, collective_name(collective), proved));
      std::fflush(stdout);
      all_proved += proved;
    }
  }
  if (all_proved == 0) return error(Code::kInvalidArgument, "no algorithm does what was selected");
  say(fmt::format("{} plans proved, {} to {} ranks\n", all_proved, selection.first_ranks,
                  selection.last_ranks));
  return ok_status();
}

}  // namespace unisono::uni_plan
