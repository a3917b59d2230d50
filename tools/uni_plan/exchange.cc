// `uni-plan draw`, `export` and `import`: plans that leave the program, and come back.
#include <fmt/format.h>

#include <cstdio>

#include "algorithms/plan_text.h"
#include "algorithms/verify/verify.h"
#include "tools/uni_plan/commands.h"
#include "tools/uni_plan/files.h"
#include "tools/uni_plan/svg.h"

namespace unisono::uni_plan {
namespace {

Result<std::vector<Plan>> plans_of(const ExchangeOptions& options) {
  if (!options.plan_file.empty()) return plans_of_file(options.plan_file);
  PlanRequest request = options.request;
  TRY_ASSIGN(request.collective, collective_of(options.collective));
  if (request.ranks < 1)
    return error(Code::kInvalidArgument, "--ranks or --hosts: how many ranks is the plan for?");
  return plans_of_all_ranks(options.algorithm, request);
}

}  // namespace

Result<std::vector<Plan>> plans_of_file(const std::string& file) {
  TRY_ASSIGN(const std::string text, read_file(file, kMaxPlanTextBytes));
  auto plans = parse_plan_text(text);
  if (!plans.ok()) return plans.status().annotate("'" + file + "'");
  const Status proved = verify_plans(*plans);
  if (!proved.ok()) return proved.annotate("'" + file + "': not proved");
  return plans;
}

Status draw(const ExchangeOptions& options) {
  // to_svg says so, too, but plans of thousands of ranks take minutes to make.
  if (options.request.ranks > kMaxDrawnRanks)
    return error(Code::kInvalidArgument,
                 "{} ranks: nobody can read such a picture; at most {} ranks are drawn",
                 options.request.ranks, kMaxDrawnRanks);
  TRY_ASSIGN(const std::vector<Plan> plans, plans_of(options));
  TRY_ASSIGN(const std::string svg, to_svg(plans));
  return write_file(options.file, svg);
}

Status export_plan(const ExchangeOptions& options) {
  TRY_ASSIGN(const std::vector<Plan> plans, plans_of(options));
  return write_file(options.file, to_plan_text(plans));
}

Status import_plan(const std::string& file) {
  TRY_ASSIGN(const std::vector<Plan> plans, plans_of_file(file));
  const Plan& any = plans.front();
  size_t steps = 0;
  for (const Plan& plan : plans) steps += plan.order.size();
  say(fmt::format("{} {} of {} ranks{}: proved; {} lanes, {} steps, hash {:016x}\n", any.algorithm,
                  collective_name(any.collective), any.ranks,
                  has_root(any.collective) ? fmt::format(", root {}", any.root) : "",
                  any.lanes.size(), steps, plan_hash(plans)));
  return ok_status();
}

}  // namespace unisono::uni_plan
