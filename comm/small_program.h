// SmallProgram: a plan of one round with every address worked out for one shape of call, so that a
// small call does nothing but its messages and its arithmetic. Made once a shape
// (Communicator::prepare), pointer-free: offsets into send and recv.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/bound_plan.h"
#include "comm/call.h"
#include "comm/geometry.h"
#include "comm/reduce/kernels.h"

namespace unisono {

struct SmallOperand {
  RecvEnd* recv = nullptr;  // the next message of this end, or
  bool from_recv = false;   //   the recv buffer (true), the send buffer (false),
  uint64_t offset = 0;      //   at this byte
  int32_t peer = -1;
  uint8_t prescale = 0;
};

struct SmallStep {
  SendEnd* forward = nullptr;
  uint32_t bytes = 0;
  uint64_t elements = 0;
  bool has_destination = false;
  bool kernel = false;       // otherwise a copy
  uint64_t destination = 0;  // byte of the recv buffer
  int64_t divide_by = 0;
  uint32_t first_operand = 0, operands = 0;
  int32_t forward_peer = -1;
};

struct SmallProgram {
  // False: some step packs blocks, uses scratch, or needs two stages; StepRunner runs the plan's
  // steps instead.
  bool simple = false;
  ReduceFn kernel = nullptr;     // of the type and op; null for collectives that only move
  std::vector<SmallStep> steps;  // in BoundPlan::order
  std::vector<SmallOperand> operands;
};

SmallProgram make_small_program(const BoundPlan& bound, const Call& call, const Geometry& geometry);

inline constexpr uint32_t kExpressOperands = 16;
// Whether it is one message to everybody, then one reduction of everybody's: what comm/express.h
// runs.
bool fits_express(const SmallProgram& program, const Call& call);

}  // namespace unisono
