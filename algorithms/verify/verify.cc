#include "algorithms/verify/verify.h"

#include "algorithms/verify/shape.h"
#include "algorithms/verify/wiring.h"

namespace unisono {

Status verify_plans(const std::vector<Plan>& plans, const VerifyOptions& options) {
  using namespace verify;
  if (options.slots < 1 || options.rounds < 0) {
    return error(Code::kInvalidArgument, "{} slots, {} rounds", options.slots, options.rounds);
  }
  TRY(check_shape(plans));
  TRY_ASSIGN(const Wiring wiring, wire({&plans}));
  TRY(check_structure(plans, wiring, options));
  TRY(check_deadlock(plans, wiring, options));
  TRY(check_overlap(plans, wiring));
  if (plans[0].collective == Collective::kBarrier) return check_barrier(plans, wiring, options);
  return check_values(plans, wiring, options);
}

}  // namespace unisono
