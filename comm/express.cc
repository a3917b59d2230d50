#include "comm/express.h"

#include "base/net/event_loop.h"
#include "base/pause.h"
#include "comm/collective_operation.h"
#include "comm/driver.h"
#include "comm/group.h"
#include "comm/handles.h"

namespace unisono {
namespace {

constexpr int kSpins = 40;  // as long as a message's flight, between cores far apart

// As check_comm, without its words.
inline bool usable(uniComm_t handle) {
  return handle != nullptr && !handle->finalized && !net::is_forked_child();
}

// In place, or apart.
inline bool buffers_fit(const void* send, const void* recv, uint64_t bytes) {
  const auto from = reinterpret_cast<uintptr_t>(send);
  const auto to = reinterpret_cast<uintptr_t>(recv);
  return from != 0 && to != 0 && (from == to || from >= to + bytes || to >= from + bytes);
}

// The peers' messages, each in its place among the operands. False: one is not there yet, or not of
// this call; those found stay lent, and will be lent again.
inline bool lend_all(const SmallProgram& program, const SmallStep& step, const void* send,
                     uint64_t fingerprint, int spins, const void** operands) {
  for (uint32_t i = 0; i < step.operands; i++) {
    const SmallOperand& operand = program.operands[step.first_operand + i];
    if (operand.recv == nullptr) {
      operands[i] = static_cast<const std::byte*>(send) + operand.offset;
      continue;
    }
    Message message;
    for (int turn = 0; !operand.recv->lend(&message); turn++) {
      if (turn >= spins) return false;
      pause_cpu();
    }
    if (message.header.fingerprint != fingerprint || message.header.bytes != step.bytes) {
      return false;
    }
    operands[i] = message.data;
  }
  return true;
}

inline void combine(const SmallProgram& program, const SmallStep& step, void* recv,
                    const void* const* operands) {
  ReduceArgs args;
  args.out = static_cast<std::byte*>(recv) + step.destination;
  args.in = operands;
  args.operands = static_cast<int>(step.operands);
  args.count = step.elements;
  args.divide_by = step.divide_by;
  program.kernel(args);
  for (uint32_t i = 0; i < step.operands; i++) {
    RecvEnd* const end = program.operands[step.first_operand + i].recv;
    if (end != nullptr) end->release();
  }
}

struct Issued {
  const void* send;
  void* recv;
  uint64_t ticket, sequence, fingerprint;
  const void* posted;  // memory of the message that the transport still reads, or null
};

// The rest of a call whose message has been sent, by those who know how to wait.
[[gnu::noinline]] uniResult_t finish_driven(Communicator& comm,
                                            const Communicator::Prepared& prepared,
                                            const Issued& issued) {
  Call call = prepared.call;
  call.send = issued.send;
  call.recv = issued.recv;
  CollectiveOperation& operation = comm.blocking_operation();
  operation.set(call);
  operation.ticket = issued.ticket;
  operation.timeout_ms = comm.timeout_ms();
  operation.resume(prepared, issued.sequence, issued.fingerprint, 1, issued.posted);
  const Status status = drive_started(operation);
  return status.ok() ? uniSuccess : report_call(status, collective_name(Collective::kAllReduce));
}

}  // namespace

int express_all_reduce(const void* send, void* recv, size_t count, uniDataType_t type,
                       uniRedOp_t op, uniComm_t handle) {
  if (!usable(handle) || group_open()) return kElsewhere;
  Communicator& comm = *handle->communicator;
  // First of all: without the turn a stream may be preparing another call in the slot looked at.
  const uint64_t ticket = comm.issued();
  if (!comm.has_turn(ticket)) return kElsewhere;
  const Communicator::Prepared* const prepared =
      comm.find_express(static_cast<uint32_t>(type), static_cast<uint32_t>(op), count);
  if (prepared == nullptr) return kElsewhere;
  const SmallProgram& program = prepared->program;
  const SmallStep &sends = program.steps[0], &combines = program.steps[1];
  if (!buffers_fit(send, recv, combines.bytes) || comm.failed() || !comm.small_path()) {
    return kElsewhere;
  }
  const uint64_t sequence = comm.sequence() + 1, before = comm.history();
  const uint64_t fingerprint = fingerprint_of(mix(before, prepared->hash), sequence);
  const void* input =
      static_cast<const std::byte*>(send) + program.operands[sends.first_operand].offset;
  const SendOutcome sent = sends.forward->send({fingerprint, sends.bytes}, input);
  if (sent == SendOutcome::kAgain) return kElsewhere;  // no credit
  sends.forward->prepare_next(sends.bytes);
  comm.issue();
  comm.next_sequence();
  comm.extend_history(prepared->hash);
  comm.recorder().record(sequence, fingerprint, before, prepared->call,
                         prepared->bound->algorithm_name);
  comm.note_algorithm(*prepared->bound);
  const void* operands[kExpressOperands];
  const int spins = comm.agreement().oversubscribed ? 0 : kSpins;
  // A message in shared memory is with its readers; of another transport part may be here yet.
  if (__builtin_expect(sent == SendOutcome::kPosted ||
                           !lend_all(program, combines, send, fingerprint, spins, operands) ||
                           (!comm.agreement().same_memory && !comm.flushed()),
                       0)) {
    const void* posted = sent == SendOutcome::kPosted ? input : nullptr;
    return finish_driven(comm, *prepared, {send, recv, ticket, sequence, fingerprint, posted});
  }
  combine(program, combines, recv, operands);
  comm.complete_own_turn();
  return uniSuccess;
}

}  // namespace unisono
