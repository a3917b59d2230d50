#include "comm/planner.h"

#include <algorithm>

namespace unisono {
namespace {

// Bytes per microsecond of reading for a reduction and of copying within one core's reach. Only
// their order of magnitude matters: they weigh copies against the wire.
constexpr double kReduceBytesPerUs = 8000;
constexpr double kCopyBytesPerUs = 8000;

// A meeting of ranks that share cores waits for all of them to have had their turn. Measured with
// comm-bench --race: one meeting more pays from 16-32 KiB on 4-8 ranks of two cores, not from 8.
constexpr double kSharedCoreLatencies = 3;

// Bytes of "the collective's size" in Cost's sense: the longer buffer.
double size_of(const Agreement& agreement, const Call& call) {
  const double one = static_cast<double>(call.count) * static_cast<double>(type_bytes(call.type));
  if (call.blocks != nullptr) return one;  // the sum of all blocks already
  switch (call.collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
      return one * agreement.ranks;
    default:
      return one;
  }
}

bool may_use(const Agreement& agreement, const Algorithm& algorithm, const PlanRequest& request) {
  return algorithm.supports(request) &&
         (!agreement.reproducible || !has_op(request.collective) || algorithm.reproducible);
}

}  // namespace

double modelled_us(const Agreement& agreement, const Algorithm& algorithm,
                   const PlanRequest& request, double bytes) {
  const Cost cost = algorithm.cost(request);
  const double bytes_per_us = agreement.gigabytes_per_s * 1e3;
  const double own_us = cost.wire_bytes * bytes / bytes_per_us +
                        cost.reduce_bytes * bytes / kReduceBytesPerUs +
                        cost.copy_bytes * bytes / kCopyBytesPerUs;
  if (!agreement.oversubscribed) return cost.messages * agreement.latency_us + own_us;
  // Work of ranks that take turns adds up. Per rank, so that figures stay comparable.
  const double shared_us =
      cost.total_bytes == 0 ? own_us : cost.total_bytes / request.ranks * bytes / kReduceBytesPerUs;
  return cost.messages * agreement.latency_us * kSharedCoreLatencies + shared_us;
}

Result<const Algorithm*> choose_algorithm(const Agreement& agreement, const Call& call) {
  PlanRequest request;
  request.collective = call.collective;
  request.ranks = agreement.ranks;
  request.rank = 0;
  request.root = std::max(call.root, 0);
  request.multicast = agreement.multicast;
  request.hosts = agreement.hosts;
  request.unequal_blocks = call.blocks != nullptr;
  if (!agreement.algorithm.empty()) {
    const Algorithm* forced = find_algorithm(agreement.algorithm);
    CHECK(forced != nullptr);  // checked at init
    if (forced->supports(request)) {
      if (!may_use(agreement, *forced, request)) {
        return error(Code::kInvalidUsage,
                     "algorithm {} is not reproducible, which the config asks for", forced->name);
      }
      return forced;
    }
  }
  const Algorithm* best = nullptr;
  double best_us = 0;
  const double bytes = size_of(agreement, call);
  for (const Algorithm& algorithm : algorithms()) {
    if (!may_use(agreement, algorithm, request)) continue;
    const int32_t least =
        agreement.multicast ? algorithm.least_ranks_in_one_memory : algorithm.least_ranks;
    const bool measured = agreement.oversubscribed && algorithm.cost(request).total_bytes > 0;
    if (agreement.ranks < least && !measured) continue;
    const double us = modelled_us(agreement, algorithm, request, bytes);
    if (best != nullptr && us >= best_us) continue;
    best = &algorithm;
    best_us = us;
  }
  if (best == nullptr) {
    return error(Code::kInternalError, "no algorithm for {} of {} ranks",
                 collective_name(call.collective), agreement.ranks);
  }
  return best;
}

}  // namespace unisono
