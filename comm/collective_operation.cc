#include "comm/collective_operation.h"

#include "comm/communicator.h"

namespace unisono {

Status CollectiveOperation::start() {
  Communicator& comm = communicator();
  const Communicator::Prepared* prepared = nullptr;
  TRY(comm.prepare(call_, &prepared));
  bound_ = prepared->bound;
  sequence_ = comm.next_sequence();
  const uint64_t before = comm.extend_history(prepared->hash);
  fingerprint_ = fingerprint_of(comm.history(), sequence_);
  comm.recorder().record(sequence_, fingerprint_, before, call_, bound_->algorithm_name);
  use_small_ = prepared->small && comm.small_path();
  if (use_small_) {
    small_.begin(*bound_, prepared->program, call_, prepared->geometry, fingerprint_);
  } else {
    lanes_.begin(*bound_, call_, prepared->geometry, fingerprint_);
  }
  return {};
}

void CollectiveOperation::resume(const Communicator::Prepared& prepared, uint64_t sequence,
                                 uint64_t fingerprint, size_t steps_done, const void* posted) {
  bound_ = prepared.bound;
  sequence_ = sequence;
  fingerprint_ = fingerprint;
  use_small_ = true;
  small_.begin(*bound_, prepared.program, call_, prepared.geometry, fingerprint, steps_done);
  if (posted != nullptr) small_.await_posted(prepared.program.steps[steps_done - 1], posted);
}

void CollectiveOperation::abandon() {
  if (bound_ == nullptr) return;
  if (use_small_) {
    small_.abandon();
  } else {
    lanes_.abandon();
  }
}

StallReport CollectiveOperation::stall() const {
  StallReport report;
  if (bound_ == nullptr) {
    report.call.collective = call_.collective;
    report.call.type = call_.type;
    report.call.op = call_.op;
    report.call.root = call_.root;
    report.call.count = call_.count;
    return report;
  }
  if (auto record = communicator().recorder().find(sequence_)) report.call = *record;
  if (use_small_) {
    small_.describe(&report);
  } else {
    lanes_.describe(&report);
  }
  return report;
}

}  // namespace unisono
