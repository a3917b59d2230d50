#include "comm/small_executor.h"

#include <cstring>

#include "base/pause.h"
#include "comm/communicator.h"

namespace unisono {
namespace {

constexpr int kSpins = 40;

}  // namespace

void SmallExecutor::begin(const BoundPlan& bound, const SmallProgram& program, const Call& call,
                          const Geometry& geometry, uint64_t fingerprint, size_t steps_done) {
  bound_ = &bound;
  program_ = &program;
  next_ = steps_done;
  ready_ = 0;
  combined_ = false;
  mismatch_ = false;
  if (!program.simple) {
    runner_.begin(bound, call, geometry, fingerprint);
    return;
  }
  call_ = &call;
  fingerprint_ = fingerprint;
  const Agreement& agreement = communicator_.agreement();
  spins_ = agreement.cheap_poll && !agreement.oversubscribed ? kSpins : 0;
  kernel_ = program.kernel;
  if (const auto most = static_cast<size_t>(bound.max_operands); operands_.size() < most) {
    operands_.resize(most);
    prescale_.resize(most);
  }
}

// Operands in order; those found stay lent while the rest is waited for.
bool SmallExecutor::lend(const SmallStep& step) {
  const SmallOperand* operands = program_->operands.data() + step.first_operand;
  for (; ready_ < step.operands; ready_++) {
    const SmallOperand& operand = operands[ready_];
    if (operand.recv == nullptr) {
      operands_[ready_] = local(operand);
      prescale_[ready_] = operand.prescale;
      continue;
    }
    Message message;
    // A few turns right here: the way out to the driver and back is as long as a message's flight.
    for (int turn = 0; !operand.recv->lend(&message); turn++) {
      if (turn >= spins_) {
        waiting_for_ = operand.peer;
        return false;
      }
      pause_cpu();
    }
    if (__builtin_expect(
            message.header.fingerprint != fingerprint_ || message.header.bytes != step.bytes, 0)) {
      waiting_for_ = operand.peer;
      if (!mismatch_) communicator_.foreign_message(operand.peer, message.header);
      mismatch_ = true;
      return false;
    }
    operands_[ready_] = message.data;
    prescale_[ready_] = 0;
  }
  return true;
}

bool SmallExecutor::send(const SmallStep& step, const void* data) {
  const SendOutcome outcome = step.forward->send({fingerprint_, step.bytes}, data);
  if (outcome == SendOutcome::kDone) return true;
  if (outcome == SendOutcome::kPosted) {
    await_posted(step, data);
    return true;
  }
  waiting_for_ = step.forward_peer;
  return false;
}

bool SmallExecutor::run(const SmallStep& step) {
  if (!lend(step)) return false;
  if (!step.has_destination && step.operands == 1 && !step.kernel) {
    if (!send(step, operands_[0])) return false;
  } else {
    // Memory that a posted send still reads may be the destination: rare here, so any pending send
    // is waited for.
    if (!pending_.empty() && !sends_complete()) {
      waiting_for_ = -1;
      return false;
    }
    std::byte* slot = nullptr;
    const bool copies = !step.kernel && step.operands == 1;
    if (step.forward != nullptr && copies) {
      // Short messages have places of their own in the transport, which a slot is too large for.
      if (!send(step, operands_[0])) return false;
    } else if (step.forward != nullptr) {
      slot = step.forward->reserve();
      if (slot == nullptr) {
        waiting_for_ = step.forward_peer;
        return false;
      }
    }
    std::byte* out =
        step.has_destination ? static_cast<std::byte*>(call_->recv) + step.destination : nullptr;
    if (step.kernel && step.elements != 0) {
      ReduceArgs args;
      const bool stream = slot != nullptr && step.forward->streams(step.bytes);
      args.out = out != nullptr ? out : slot;
      args.also = out != nullptr ? slot : nullptr;
      args.stream = out == nullptr && stream;
      args.stream_also = stream;
      args.in = operands_.data();
      args.prescale = call_->op == RedOp::kPreMulSum ? prescale_.data() : nullptr;
      args.operands = static_cast<int>(step.operands);
      args.count = step.elements;
      args.scalar = call_->scalar;
      args.divide_by = step.divide_by;
      kernel_(args);
    } else if (step.elements != 0) {
      if (out != nullptr && out != operands_[0]) std::memcpy(out, operands_[0], step.bytes);
    }
    if (slot != nullptr) step.forward->commit({fingerprint_, step.bytes});
  }
  const SmallOperand* operands = program_->operands.data() + step.first_operand;
  for (uint32_t i = 0; i < step.operands; i++) {
    if (operands[i].recv != nullptr) operands[i].recv->release();
  }
  return true;
}

bool SmallExecutor::sends_complete() {
  if (!program_->simple) return runner_.sends_complete();
  if (__builtin_expect(pending_.empty(), 1)) return true;
  std::erase_if(pending_, [](const PendingSend& p) { return p.end->completed() >= p.ordinal; });
  return pending_.empty();
}

void SmallExecutor::describe(StallReport* report) const {
  if (next_ == bound_->order.size()) return;
  report->lane = bound_->order[next_].lane;
  report->step = bound_->order[next_].index;
  report->peer = program_->simple ? waiting_for_ : runner_.waiting_for();
}

}  // namespace unisono
