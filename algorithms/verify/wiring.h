// Wiring: the channels of all ranks' plans, joined end to end. Made once by the structure check,
// then read by all others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/plan.h"
#include "algorithms/verify/verify.h"
#include "base/status.h"

namespace unisono::verify {

using Plans = std::vector<Plan>;

// A container's index from one of the plan's (signed, already checked) numbers.
inline size_t at(int64_t number) {
  return static_cast<size_t>(number);
}

// A channel with a name of its own over all ranks. Its readers' ends are [first_end, first_end +
// readers).
struct WiredChannel {
  ChannelId
      id;  // reader sets are compared as sets: all-but-writer of two ranks is named by its one rank
  int32_t first_end = 0;
  int32_t readers = 0;
};

// One call's view: by rank, by index into Plan::channels.
struct CallWiring {
  std::vector<std::vector<int32_t>> channel;  // -> Wiring::channels
  std::vector<std::vector<int32_t>> end;      // -> this rank's reading end; -1: it only writes
};

struct Wiring {
  std::vector<WiredChannel> channels;
  int32_t ends = 0;
  std::vector<CallWiring> calls;  // one for each set of plans given to wire()
};

// Joins the channels of one call's plans, or of several calls' over the same channels.
// Fails where a plan names a channel that cannot be (rule 1).
Result<Wiring> wire(const std::vector<const Plans*>& calls);

// Where a violation is. Becomes text only when there is one.
struct Place {
  const Plan& plan;
  int32_t lane = -1;  // -1: the rank's whole plan
  int32_t step = -1;
  int32_t round = -1;  // -1: any
  std::string text() const;
};

template <class... Args>
Status violation(const char* rule, const Place& where, fmt::format_string<Args...> format,
                 Args&&... args) {
  return error(Code::kInternalError, "rule {}: {}: {}", rule, where.text(),
               fmt::format(format, std::forward<Args>(args)...));
}

// The parts of the proof; each assumes that those before it passed.
Status check_structure(const Plans& plans, const Wiring& wiring, const VerifyOptions& options);
Status check_overlap(const Plans& plans, const Wiring& wiring);
Status check_deadlock(const Plans& plans, const Wiring& wiring, const VerifyOptions& options);
Status check_values(const Plans& plans, const Wiring& wiring, const VerifyOptions& options);
Status check_barrier(const Plans& plans, const Wiring& wiring, const VerifyOptions& options);

}  // namespace unisono::verify
