#include "algorithms/registry.h"

#include <array>
#include <string>

#include "algorithms/rows.h"
#include "base/check.h"

namespace unisono {
namespace {

std::string names_of(const PlanRequest* supporting) {
  std::string names;
  for (const Algorithm& row : algorithms()) {
    if (supporting != nullptr && !row.supports(*supporting)) continue;
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names.empty() ? "none" : names;
}

Status check_request(const PlanRequest& request) {
  if (request.ranks < 1)
    return error(Code::kInvalidArgument, "a plan for {} ranks: at least 1 is needed",
                 request.ranks);
  if (request.rank < 0 || request.rank >= request.ranks)
    return error(Code::kInvalidArgument, "rank {} is not one of {} ranks", request.rank,
                 request.ranks);
  if (request.root < 0 || request.root >= request.ranks)
    return error(Code::kInvalidArgument, "root {} is not one of {} ranks", request.root,
                 request.ranks);
  return ok_status();
}

}  // namespace

std::span<const Algorithm> algorithms() {
  static const std::array rows = {one_shot_row(),
                                  direct_row(),
                                  ring_row(),
                                  chain_row(),
                                  binomial_tree_row(),
                                  recursive_doubling_row(),
                                  pairwise_row(),
                                  binary_tree_row(),
                                  double_binary_tree_row(),
                                  recursive_halving_row(),
                                  circulant_row(),
                                  bruck_row(),
                                  pat_row(),
                                  scatter_allgather_row(),
                                  two_level_row()};
  return rows;
}

const Algorithm* find_algorithm(std::string_view name) {
  for (const Algorithm& row : algorithms())
    if (name == row.name) return &row;
  return nullptr;
}

Result<Plan> build_plan(std::string_view algorithm, const PlanRequest& request) {
  TRY(check_request(request));
  const Algorithm* row = find_algorithm(algorithm);
  if (row == nullptr)
    return error(Code::kInvalidArgument, "no algorithm is called '{}'; there are: {}", algorithm,
                 names_of(nullptr));
  if (!row->supports(request))
    return error(Code::kInvalidArgument, "algorithm '{}' does not do {} on {} ranks; these do: {}",
                 algorithm, collective_name(request.collective), request.ranks, names_of(&request));
  return row->build(request);
}

}  // namespace unisono
