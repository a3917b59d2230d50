// meet_by_store: the id travels through a key-value store that a framework gives.
#include "base/env.h"
#include "comm/bootstrap/job_secret.h"
#include "comm/bootstrap/meet.h"

namespace unisono {

Result<Place> meet_by_store(const StoreCalls& store, const std::string& prefix, int32_t ranks,
                            int32_t rank, int64_t deadline_ns) {
  using namespace bootstrap;
  if (ranks < 1 || ranks > kMaxRanks) {
    return error(Code::kInvalidArgument, "ranks: {} is not in 1..{}", ranks, kMaxRanks);
  }
  if (rank < 0 || rank >= ranks) {
    return error(Code::kInvalidArgument, "rank: {} is not in 0..{}", rank, ranks - 1);
  }
  if (ranks == 1) return meet("env://", 1, 0, Environment(), std::nullopt, deadline_ns);
  TRY_ASSIGN(const std::optional<net::Secret> key, job_secret());
  Place place;
  place.ranks = ranks;
  place.rank = rank;
  place.how = fmt::format("a store (prefix '{}')", prefix);
  const std::string name = prefix.empty() ? "unisono/id" : prefix + "/unisono/id";
  if (rank == 0) {
    ServeOptions options;
    options.job_key = key;
    TRY_ASSIGN(place.id, serve_meeting(std::move(options)));
    const Status status = store.set(name, publish_id(place.id, key));
    if (status.ok()) return place;
    withdraw_meeting(place.id);
    return status.annotate("store: set");
  }
  const int64_t left_ms = (deadline_ns - real_env().now_ns()) / 1'000'000;
  const auto published = store.get(name, left_ms > 0 ? left_ms : 1);
  if (!published.ok()) return published.status().annotate("store: get");
  TRY_ASSIGN(place.id, read_published_id(*published, key));
  return place;
}

}  // namespace unisono
