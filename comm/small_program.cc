#include "comm/small_program.h"

namespace unisono {
namespace {

class Maker {
 public:
  Maker(const BoundPlan& bound, const Call& call, const Geometry& geometry)
      : bound_(bound), call_(call), geometry_(geometry), reduces_(has_op(call.collective)) {}

  SmallProgram make() {
    program_.simple = true;
    program_.kernel = reduces_ ? reduce_kernel(call_.type, call_.op) : nullptr;
    for (const OrderedStep& ordered : bound_.order) add(*ordered.step);
    return std::move(program_);
  }

 private:
  const BoundChannel& channel(int16_t index) const {
    return bound_.channels[static_cast<size_t>(index)];
  }

  bool plain(const Chunk& chunk) const {
    return chunk.blocks == 1 && chunk.buffer != Buffer::kScratch;
  }

  uint64_t offset_of(const Chunk& chunk) const {
    const int32_t blocks =
        chunk.buffer == Buffer::kInput ? bound_.plan.input_blocks : bound_.plan.output_blocks;
    return geometry_.begin(chunk.first % blocks, chunk.buffer == Buffer::kInput) *
           type_bytes(call_.type);
  }

  void add_operand(const Operand& source) {
    SmallOperand operand;
    if (source.receive) {
      operand.recv = channel(source.channel).recv;
      operand.peer = channel(source.channel).peer;
    } else {
      if (!plain(source.chunk)) return refuse();
      operand.from_recv = source.chunk.buffer == Buffer::kOutput;
      operand.offset = offset_of(source.chunk);
      operand.prescale = reduces_ && call_.op == RedOp::kPreMulSum && !operand.from_recv;
    }
    program_.operands.push_back(operand);
  }

  void add(const Step& step) {
    SmallStep small;
    if (step.length.blocks != 1) return refuse();
    small.elements = geometry_.slice(step.length.first, 0);
    small.bytes = static_cast<uint32_t>(small.elements * type_bytes(call_.type));
    small.first_operand = static_cast<uint32_t>(program_.operands.size());
    small.operands = static_cast<uint32_t>(step.sources.size());
    for (const Operand& source : step.sources) add_operand(source);
    if (!program_.simple) return;
    if (step.has_destination) {
      if (!plain(step.destination)) return refuse();
      small.has_destination = true;
      small.destination = offset_of(step.destination);
    }
    if (step.forward >= 0) {
      const BoundChannel& forward = channel(step.forward);
      if (step.has_destination && !forward.prefers_reserve) return refuse();
      small.forward = forward.send;
      small.forward_peer = forward.peer;
    }
    small.divide_by = step.final && reduces_ && call_.op == RedOp::kAvg ? bound_.plan.ranks : 0;
    const bool scaled = program_.operands[small.first_operand].prescale != 0;
    const bool normalised = step.final && call_.type == DataType::kBool;
    small.kernel = reduces_ && (small.operands > 1 || scaled || small.divide_by != 0 || normalised);
    program_.steps.push_back(small);
  }

  void refuse() { program_.simple = false; }

  const BoundPlan& bound_;
  const Call& call_;
  const Geometry& geometry_;
  const bool reduces_;
  SmallProgram program_;
};

}  // namespace

SmallProgram make_small_program(const BoundPlan& bound, const Call& call,
                                const Geometry& geometry) {
  return Maker(bound, call, geometry).make();
}

bool fits_express(const SmallProgram& program, const Call& call) {
  if (!program.simple || program.steps.size() != 2 || call.collective != Collective::kAllReduce ||
      call.op == RedOp::kPreMulSum || call.count == 0) {
    return false;
  }
  const SmallStep &first = program.steps[0], &second = program.steps[1];
  const SmallOperand& sent = program.operands[first.first_operand];
  const bool sends = first.forward != nullptr && !first.has_destination && !first.kernel &&
                     first.operands == 1 && sent.recv == nullptr && !sent.from_recv;
  bool combines = second.forward == nullptr && second.has_destination && second.kernel &&
                  second.operands <= kExpressOperands;
  for (uint32_t i = 0; i < second.operands; i++) {
    combines = combines && !program.operands[second.first_operand + i].from_recv;
  }
  return sends && combines;
}

}  // namespace unisono
