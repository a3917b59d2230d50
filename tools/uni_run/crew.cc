#include "tools/uni_run/crew.h"

#include "tools/uni_run/binding.h"
#include "tools/uni_run/ending.h"

namespace unisono::uni_run {

Result<RankSpec> LocalCrew::spec(int number) {
  if (allowed_.empty()) {
    TRY_ASSIGN(allowed_, allowed_cores());
  }
  const std::vector<int> cores = cores_of_rank(allowed_, options_.bind, options_.ranks, number);
  RankSpec spec;
  spec.command = options_.command;
  spec.environment = rank_environment(options_, job_, number, cores.size());
  if (options_.bind != Bind::kNone) spec.cores = cores;
  if (number == 0) spec.input = input_;
  spec.piped_output = options_.prefix;
  spec.inherited_fd = job_.secret.get();
  return spec;
}

std::string LocalCrew::prefix(int number) const {
  return fmt::format("[{}] ", options_.part.first_rank + number);
}

std::string LocalCrew::name(int number) const {
  return fmt::format("rank {}", options_.part.first_rank + number);
}

std::string LocalCrew::names(const std::vector<int>& ascending) const {
  std::vector<int> ranks;
  for (const int number : ascending) ranks.push_back(options_.part.first_rank + number);
  return (ranks.size() == 1 ? "rank " : "ranks ") + list_numbers(ranks);
}

}  // namespace unisono::uni_run
