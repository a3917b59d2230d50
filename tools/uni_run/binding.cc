#include "tools/uni_run/binding.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>

namespace unisono::uni_run {
namespace {

constexpr size_t kWordBits = 8 * sizeof(unsigned long);
constexpr size_t kMaxCores = size_t{1} << 20;

}  // namespace

Result<std::vector<int>> allowed_cores() {
  // The kernel refuses a set smaller than its own; how large that is nobody says.
  for (size_t cores = 1024; cores <= kMaxCores; cores *= 2) {
    std::vector<unsigned long> mask(cores / kWordBits);
    auto* const set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (sched_getaffinity(0, cores / 8, set) == 0) {
      std::vector<int> allowed;
      for (size_t core = 0; core < cores; ++core) {
        if (mask[core / kWordBits] >> (core % kWordBits) & 1) {
          allowed.push_back(static_cast<int>(core));
        }
      }
      return allowed;
    }
    if (errno != EINVAL) break;
  }
  return system_error(errno, "sched_getaffinity");
}

std::vector<int> cores_of_rank(const std::vector<int>& allowed, Bind bind, int ranks, int rank) {
  const size_t cores = allowed.size();
  const auto of = static_cast<size_t>(ranks), at = static_cast<size_t>(rank);
  if (bind == Bind::kNone || cores == 0) return allowed;
  if (bind == Bind::kCore || cores < of) return {allowed[at % cores]};
  return {allowed.begin() + static_cast<ptrdiff_t>(cores * at / of),
          allowed.begin() + static_cast<ptrdiff_t>(cores * (at + 1) / of)};
}

std::vector<unsigned long> core_mask(const std::vector<int>& cores) {
  std::vector<unsigned long> mask;
  for (const int core : cores) {
    const auto number = static_cast<size_t>(core);
    mask.resize(std::max(mask.size(), number / kWordBits + 1));
    mask[number / kWordBits] |= 1ul << (number % kWordBits);
  }
  return mask;
}

}  // namespace unisono::uni_run
