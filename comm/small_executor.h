// SmallExecutor: the small path. Runs a bound plan of one round in the builder's emission order
// (PLAN_MACHINE rule 10), one step after the other, with no lanes, awaits or per-step objects: by
// its small program where there is one, else by the plan's steps. tests/comm/small_path_test.cc
// compares it with the lane executor.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/operation.h"
#include "comm/small_program.h"
#include "comm/step_runner.h"

namespace unisono {

class SmallExecutor {
 public:
  explicit SmallExecutor(Communicator& communicator)
      : communicator_(communicator), runner_(communicator) {}

  void begin(const BoundPlan& bound, const SmallProgram& program, const Call& call,
             const Geometry& geometry, uint64_t fingerprint, size_t steps_done = 0);
  Advance advance() {
    const size_t before = next_, steps = bound_->order.size();
    while (next_ < steps) {
      if (!(program_->simple ? run(program_->steps[next_])
                             : runner_.try_step(*bound_->order[next_].step, 0, &combined_))) {
        return next_ != before ? Advance::kMoved : Advance::kIdle;
      }
      next_++;
      ready_ = 0;
    }
    if (sends_complete()) return Advance::kDone;
    return next_ != before ? Advance::kMoved : Advance::kIdle;
  }
  // The step's message was accepted as posted: its memory is needed until it is completed.
  void await_posted(const SmallStep& step, const void* data) {
    const auto* begin = static_cast<const std::byte*>(data);
    pending_.push_back({step.forward, step.forward->accepted(), begin, begin + step.bytes});
  }
  void abandon() {
    if (!program_->simple) runner_.abandon();
  }
  void describe(StallReport* report) const;

 private:
  bool run(const SmallStep& step);
  bool lend(const SmallStep& step);
  bool send(const SmallStep& step, const void* data);
  bool sends_complete();
  const void* local(const SmallOperand& operand) const {
    const void* base = operand.from_recv ? call_->recv : call_->send;
    return static_cast<const std::byte*>(base) + operand.offset;
  }

  Communicator& communicator_;
  StepRunner runner_;
  const BoundPlan* bound_ = nullptr;
  const SmallProgram* program_ = nullptr;
  const Call* call_ = nullptr;  // the operation's
  ReduceFn kernel_ = nullptr;
  uint64_t fingerprint_ = 0;
  size_t next_ = 0;
  int spins_ = 0;
  uint32_t ready_ = 0;  // operands of the present step that are there
  bool combined_ = false, mismatch_ = false;
  int32_t waiting_for_ = -1;
  std::vector<const void*> operands_;
  std::vector<uint8_t> prescale_;
  std::vector<PendingSend> pending_;
};

}  // namespace unisono
