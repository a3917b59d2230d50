// What uni-plan does, apart from reading its arguments. Each writes to standard output; an error is
// returned.
#pragma once

#include <optional>
#include <string>

#include "algorithms/registry.h"
#include "base/status.h"

namespace unisono::uni_plan {

struct PrintOptions {
  std::string algorithm, collective;
  PlanRequest request;          // ranks, root, multicast
  std::optional<int32_t> rank;  // absent: all ranks
  bool json = false;
  bool unroll = false;
};
Status print(const PrintOptions& options);

void list();

struct VerifySelection {
  std::string algorithm, collective;  // empty: all
  int32_t first_ranks = 1, last_ranks = 8;
};
// Proves every plan selected, from every root, with and without multicast. The error names the
// first that fails.
Status verify(const VerifySelection& selection);

// "4" or "1-17".
Status parse_ranks(const std::string& text, VerifySelection* selection);

}  // namespace unisono::uni_plan
