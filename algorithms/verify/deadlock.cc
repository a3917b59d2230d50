// Deadlock (rule 14): at K slots, over K + 2 rounds, by lanes (eager; and late where the plan
// claims it) and by one thread a rank (eager: the small path sends inline data). Then calls one
// after the other over the same channels.
#include "algorithms/verify/machine.h"

namespace unisono::verify {
namespace {

int rounds_of(const VerifyOptions& options) {
  return options.rounds > 0 ? options.rounds : options.slots + 2;
}

bool late(const Plans& plans, const VerifyOptions& options) {
  return options.late || plans[0].late;
}

Status run(const std::vector<const Plans*>& calls, const Wiring& wiring, MachineOptions options) {
  return Machine(calls, wiring, options).run(nullptr);
}

}  // namespace

Status check_deadlock(const Plans& plans, const Wiring& wiring, const VerifyOptions& options) {
  const std::vector<const Plans*> calls = {&plans};
  MachineOptions machine;
  machine.slots = options.slots;
  machine.rounds = rounds_of(options);
  TRY(run(calls, wiring, machine));
  machine.single_thread = true;
  TRY(run(calls, wiring, machine));
  machine.single_thread = false;
  machine.late = true;
  return late(plans, options) ? run(calls, wiring, machine) : ok_status();
}

}  // namespace unisono::verify

namespace unisono {

Status verify_sequence(const std::vector<Plan>& first, const std::vector<Plan>& then,
                       const VerifyOptions& options) {
  using namespace verify;
  const std::vector<const Plans*> calls = {&first, &then, &first};
  TRY_ASSIGN(const Wiring wiring, wire(calls));
  MachineOptions machine;
  machine.slots = options.slots;
  machine.rounds = rounds_of(options);
  TRY(run(calls, wiring, machine));
  machine.late = late(first, options) && late(then, options);
  return machine.late ? run(calls, wiring, machine) : ok_status();
}

}  // namespace unisono
