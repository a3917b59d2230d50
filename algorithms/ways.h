// Ways: an algorithm as a table, one line a collective that it does. Its supports, build and cost
// follow.
#pragma once

#include "algorithms/builder.h"

namespace unisono {

// Into how many blocks an all-reduce, reduce, broadcast or barrier cuts its vector; the other
// collectives have one block a rank, whatever is said here.
inline int32_t one_block(const PlanRequest&) {
  return 1;
}
inline int32_t two_blocks(const PlanRequest&) {
  return 2;
}
inline int32_t block_a_rank(const PlanRequest& request) {
  return request.ranks;
}

inline bool any_ranks(const PlanRequest&) {
  return true;
}

struct Way {
  Collective collective;
  void (*emit)(PlanBuilder*);  // at least 2 ranks
  int32_t (*blocks)(const PlanRequest&) = one_block;
  bool late = true;           // as in Plan
  bool reproducible = false;  // as in Plan
  bool (*fits)(const PlanRequest&) = any_ranks;
  bool unequal_blocks = true;  // as in PlanRequest; false: steps do not tell which blocks they move
};

// What every row says of itself.
struct About {
  const char* name;
  const char* paper;
  bool pipelines = true;
  int32_t least_ranks = 1, least_ranks_in_one_memory = 1;  // as in Algorithm
};

// `kWays` is an array of Way; `kCost` is asked for at least 2 ranks.
template <const About& kAbout, const auto& kWays, Cost (*kCost)(const PlanRequest&)>
class WaysOf {
 public:
  static Algorithm row() {
    Algorithm row{.name = kAbout.name,
                  .paper = kAbout.paper,
                  .reproducible = false,
                  .late = true,
                  .pipelines = kAbout.pipelines,
                  .least_ranks = kAbout.least_ranks,
                  .least_ranks_in_one_memory = kAbout.least_ranks_in_one_memory,
                  .supports = supports,
                  .build = build,
                  .cost = cost};
    for (const Way& way : kWays) {
      row.reproducible = row.reproducible || way.reproducible;
      row.late = row.late && way.late;
    }
    return row;
  }

 private:
  static const Way* find(const PlanRequest& request) {
    for (const Way& way : kWays) {
      if (way.collective != request.collective || !way.fits(request)) continue;
      if (way.unequal_blocks || !request.unequal_blocks) return &way;
    }
    return nullptr;
  }
  static bool supports(const PlanRequest& request) { return find(request) != nullptr; }
  static Plan build(const PlanRequest& request) {
    const Way* way = find(request);
    CHECK(way != nullptr);
    if (request.ranks == 1) return copy_plan(kAbout.name, request, way->late, way->reproducible);
    PlanBuilder plan(kAbout.name, request, way->blocks(request));
    way->emit(&plan);
    return plan.finish(way->late, way->reproducible);
  }
  static Cost cost(const PlanRequest& request) {
    return request.ranks == 1 ? Cost{.copy_bytes = 1} : kCost(request);
  }
};

}  // namespace unisono
