#include "comm/step_runner.h"

#include <algorithm>

#include "base/caches.h"
#include "comm/communicator.h"

namespace unisono {
namespace {

// Below this a copy is cheaper than keeping the memory pinned until the reader is done.
constexpr uint64_t kReferenceMinBytes = 8192;

uint64_t round_up_64(uint64_t bytes) {
  return (bytes + 63) & ~uint64_t{63};
}

}  // namespace

void StepRunner::begin(const BoundPlan& bound, const Call& call, const Geometry& geometry,
                       uint64_t fingerprint) {
  bound_ = &bound;
  call_ = call;
  geometry_ = geometry;
  fingerprint_ = fingerprint;
  element_bytes_ = type_bytes(call.type);
  has_op_ = has_op(call.collective);
  prescale_ = has_op_ && call.op == RedOp::kPreMulSum;
  const uint64_t span =
      call.count * element_bytes_ *
      static_cast<uint64_t>(
          geometry.rule == BlockRule::kSplit || geometry.table != nullptr ? 1 : bound.plan.blocks);
  stream_ = outgrows_cache(span);
  kernel_ = has_op_ ? reduce_kernel(call.type, call.op) : nullptr;
  if (const size_t most = static_cast<size_t>(bound.max_operands); lent_.size() < most) {
    lent_.resize(most);
    operands_.resize(most);
    prescale_flags_.resize(most);
  }
  hinted_.assign(bound.channels.size(), nullptr);
  hinted_round_.resize(bound.channels.size());
  pending_.clear();
  mismatch_ = false;
  waiting_for_ = -1;
  grow_scratch();
}

// `span`: bytes of all blocks. With twice this core's part of the shared cache nothing of the
// output is left in it for the next reader anyway, and each ordinary store would first fetch its
// line.
bool StepRunner::outgrows_cache(uint64_t span) const {
  const Plan& plan = bound_->plan;
  const auto* output = static_cast<const std::byte*>(call_.recv);
  const auto* input = static_cast<const std::byte*>(call_.send);
  const uint64_t blocks = static_cast<uint64_t>(std::max(plan.blocks, 1));
  const uint64_t written = span / blocks * static_cast<uint64_t>(plan.output_blocks);
  const bool in_place = input >= output && input < output + written;
  const uint64_t read = in_place ? 0 : span / blocks * static_cast<uint64_t>(plan.input_blocks);
  return written + read >= 2 * shared_cache_a_core();
}

void StepRunner::grow_scratch() {
  const auto& blocks = bound_->plan.scratch_blocks;
  if (blocks.empty()) return;
  const size_t one = round_up_64(geometry_.slice_elements * element_bytes_);
  scratch_at_.assign(blocks.size(), 0);
  size_t total = 0;
  for (size_t lane = 0; lane < blocks.size(); lane++) {
    scratch_at_[lane] = total;
    total += 2 * static_cast<size_t>(blocks[lane]) * one;
  }
  if (total != 0 && scratch_.size() < total + 64) scratch_.resize(total + 64);
}

int32_t StepRunner::blocks_of(const Chunk& chunk) const {
  if (chunk.buffer == Buffer::kScratch) {
    return bound_->plan.scratch_blocks[static_cast<size_t>(chunk.lane)];
  }
  return chunk.buffer == Buffer::kOutput ? bound_->plan.output_blocks : bound_->plan.input_blocks;
}

int32_t StepRunner::block_index(const Chunk& chunk, int32_t offset) const {
  const int32_t blocks = blocks_of(chunk), block = chunk.first + offset;
  return block < blocks ? block : block % blocks;
}

std::byte* StepRunner::block_address(const Chunk& chunk, int32_t offset, uint64_t round) const {
  const int32_t block = block_index(chunk, offset);
  if (chunk.buffer == Buffer::kScratch) {
    const size_t one = round_up_64(geometry_.slice_elements * element_bytes_);
    const auto base = reinterpret_cast<uintptr_t>(scratch_.data());
    const size_t parity = round % 2;
    const size_t index = 2 * static_cast<size_t>(block) + parity;
    return reinterpret_cast<std::byte*>(round_up_64(base)) +
           scratch_at_[static_cast<size_t>(chunk.lane)] + index * one;
  }
  // A const input is only ever read: the builder has proved that no step writes kInput.
  auto* base = chunk.buffer == Buffer::kInput
                   ? const_cast<std::byte*>(static_cast<const std::byte*>(call_.send))
                   : static_cast<std::byte*>(call_.recv);
  const uint64_t element =
      geometry_.begin(block, chunk.buffer == Buffer::kInput) + round * geometry_.slice_elements;
  return base + element * element_bytes_;
}

bool StepRunner::contiguous(const Chunk& chunk) const {
  if (chunk.blocks == 1) return true;
  return chunk.buffer != Buffer::kScratch && geometry_.rounds == 1 &&
         block_index(chunk, 0) + chunk.blocks <= blocks_of(chunk) &&
         (geometry_.table == nullptr || geometry_.table->packed);
}

uint64_t StepRunner::step_elements(const Step& step, uint64_t round) const {
  if (step.length.blocks == 1) return geometry_.slice(step.length.first, round);
  uint64_t elements = 0;
  for (int32_t i = 0; i < step.length.blocks; i++) {
    elements += geometry_.slice((step.length.first + i) % bound_->plan.blocks, round);
  }
  return elements;
}

bool StepRunner::lend_one(const BoundChannel& channel, uint64_t bytes, const std::byte** data) {
  Message message;
  if (!channel.recv->lend(&message)) {
    waiting_for_ = channel.peer;
    return false;
  }
  if (__builtin_expect(message.header.fingerprint != fingerprint_ || message.header.bytes != bytes,
                       0)) {
    waiting_for_ = channel.peer;
    if (!mismatch_) {
      mismatch_ = true;
      communicator_.foreign_message(channel.peer, message.header);
    }
    return false;
  }
  *data = message.data;
  return true;
}

bool StepRunner::lend_all(const Step& step, uint64_t round, uint64_t bytes) {
  bool all = true;
  for (size_t i = 0; i < step.sources.size(); i++) {
    const Operand& source = step.sources[i];
    lent_[i] = nullptr;
    if (!source.receive) continue;
    const BoundChannel& channel = bound_->channels[static_cast<size_t>(source.channel)];
    if (!channel.prefers_reserve) hint(step, round, bytes);
    if (!lend_one(channel, bytes, &lent_[i])) {
      all = false;
      break;
    }
  }
  return all;
}

// A plain receive into the caller's memory may land there without a copy (rule 3: a shortcut, never
// the only place).
void StepRunner::hint(const Step& step, uint64_t round, uint64_t bytes) {
  if (step.sources.size() != 1 || !step.has_destination || bytes == 0 || needs_kernel(step)) return;
  if (step.destination.blocks != 1 || destination_busy(step, round)) return;
  const auto channel = static_cast<size_t>(step.sources[0].channel);
  if (hinted_[channel] == &step && hinted_round_[channel] == round) return;
  hinted_[channel] = &step;
  hinted_round_[channel] = round;
  bound_->channels[channel].recv->post(block_address(step.destination, 0, round),
                                       static_cast<uint32_t>(bytes));
}

bool StepRunner::overlaps_pending(const std::byte* begin, const std::byte* finish) {
  bool overlap = false;
  size_t kept = 0;
  for (const PendingSend& p : pending_) {
    if (p.end->completed() >= p.ordinal) continue;
    pending_[kept++] = p;
    overlap = overlap || (begin < p.finish && p.begin < finish);
  }
  pending_.resize(kept);
  return overlap;
}

bool StepRunner::destination_busy(const Step& step, uint64_t round) {
  if (pending_.empty() || !step.has_destination) return false;
  for (int32_t i = 0; i < step.destination.blocks; i++) {
    const std::byte* at = block_address(step.destination, i, round);
    const uint64_t elements = geometry_.slice((step.length.first + i) % bound_->plan.blocks, round);
    if (overlaps_pending(at, at + elements * element_bytes_)) return true;
  }
  return false;
}

bool StepRunner::needs_kernel(const Step& step) const {
  if (!has_op_) return false;
  if (step.sources.size() > 1) return true;
  if (prescale_ && !step.sources[0].receive && step.sources[0].chunk.buffer == Buffer::kInput)
    return true;
  return step.final && (call_.op == RedOp::kAvg || call_.type == DataType::kBool);
}

uint64_t StepRunner::reference_of(const BoundChannel& channel, const std::byte* data,
                                  uint64_t bytes) const {
  if (!bound_->plan.late || !channel.by_reference || bytes < kReferenceMinBytes) return 0;
  return communicator_.registration_of(channel.transport, data, bytes);
}

// Sends `data`, which stays where it is, from the caller's memory or scratch.
bool StepRunner::send_memory(const BoundChannel& channel, const std::byte* data, uint64_t bytes) {
  const MessageHeader header{fingerprint_, static_cast<uint32_t>(bytes)};
  const uint64_t registration = reference_of(channel, data, bytes);
  const SendOutcome outcome = registration != 0
                                  ? channel.send->send_reference(header, data, registration)
                                  : channel.send->send(header, data);
  if (outcome == SendOutcome::kAgain) {
    waiting_for_ = channel.peer;
    return false;
  }
  if (outcome == SendOutcome::kPosted) {
    pending_.push_back({channel.send, channel.send->accepted(), data, data + bytes});
  }
  return true;
}

// A forward of local memory, untouched: no first stage. False: not such a step.
bool StepRunner::direct_send(const Step& step, uint64_t round, uint64_t bytes, bool* done) {
  if (step.has_destination || step.sources.size() != 1 || step.sources[0].receive) return false;
  const Chunk& chunk = step.sources[0].chunk;
  if (needs_kernel(step) || !contiguous(chunk)) return false;
  const BoundChannel& channel = bound_->channels[static_cast<size_t>(step.forward)];
  *done = send_memory(channel, block_address(chunk, 0, round), bytes);
  return true;
}

bool StepRunner::try_step(const Step& step, uint64_t round, bool* combined) {
  const uint64_t bytes = step_elements(step, round) * element_bytes_;
  bool done = false;
  if (step.forward >= 0 && direct_send(step, round, bytes, &done)) return done;
  const BoundChannel* forward =
      step.forward < 0 ? nullptr : &bound_->channels[static_cast<size_t>(step.forward)];
  // The message leaves from the destination itself where that saves a copy.
  const bool from_destination =
      forward != nullptr && step.has_destination && contiguous(step.destination) &&
      (!forward->prefers_reserve ||
       reference_of(*forward, block_address(step.destination, 0, round), bytes) != 0);
  if (!*combined) {
    if (!lend_all(step, round, bytes)) return false;
    if (destination_busy(step, round)) {
      waiting_for_ = -1;
      return false;
    }
    std::byte* slot = nullptr;
    if (forward != nullptr && !from_destination) {
      slot = forward->send->reserve();
      if (slot == nullptr) {
        waiting_for_ = forward->peer;
        return false;
      }
    }
    stream_slot_ = slot != nullptr && forward->send->streams(static_cast<uint32_t>(bytes));
    combine(step, round, slot);
    if (slot != nullptr) forward->send->commit({fingerprint_, static_cast<uint32_t>(bytes)});
    release(step);
    *combined = true;
  }
  if (from_destination &&
      !send_memory(*forward, block_address(step.destination, 0, round), bytes)) {
    return false;
  }
  *combined = false;
  return true;
}

void StepRunner::combine(const Step& step, uint64_t round, std::byte* slot) {
  uint64_t packed = 0;  // bytes of the message before this piece
  for (int32_t i = 0; i < step.length.blocks; i++) {
    const int32_t block =
        step.length.blocks == 1 ? step.length.first : (step.length.first + i) % bound_->plan.blocks;
    const uint64_t elements = geometry_.slice(block, round);
    std::byte* out = step.has_destination ? block_address(step.destination, i, round) : nullptr;
    combine_piece(step, round, i, packed, out, slot == nullptr ? nullptr : slot + packed, elements);
    packed += elements * element_bytes_;
  }
}

void StepRunner::combine_piece(const Step& step, uint64_t round, int32_t offset, uint64_t packed,
                               std::byte* out, std::byte* also, uint64_t elements) {
  if (elements == 0) return;
  const size_t operands = step.sources.size();
  for (size_t i = 0; i < operands; i++) {
    const Operand& source = step.sources[i];
    operands_[i] = source.receive ? lent_[i] + packed : block_address(source.chunk, offset, round);
    prescale_flags_[i] = prescale_ && !source.receive && source.chunk.buffer == Buffer::kInput;
  }
  const bool stream = stream_ && out != nullptr && step.destination.buffer == Buffer::kOutput;
  if (!needs_kernel(step)) {
    const uint64_t bytes = elements * element_bytes_;
    if (also != nullptr) copy_bytes(also, operands_[0], bytes, stream_slot_);
    if (out != nullptr && out != operands_[0]) copy_bytes(out, operands_[0], bytes, stream);
    return;
  }
  ReduceArgs args;
  args.out = out != nullptr ? out : also;
  args.also = out != nullptr ? also : nullptr;
  args.in = operands_.data();
  args.prescale = prescale_ ? prescale_flags_.data() : nullptr;
  args.operands = static_cast<int>(operands);
  args.count = elements;
  args.scalar = call_.scalar;
  args.divide_by = step.final && call_.op == RedOp::kAvg ? bound_->plan.ranks : 0;
  args.stream = out != nullptr ? stream : stream_slot_;
  args.stream_also = stream_slot_;
  kernel_(args);
}

void StepRunner::release(const Step& step) {
  for (const Operand& source : step.sources) {
    if (source.receive) bound_->channels[static_cast<size_t>(source.channel)].recv->release();
  }
}

bool StepRunner::sends_complete() {
  size_t kept = 0;
  for (const PendingSend& p : pending_) {
    if (p.end->completed() < p.ordinal) pending_[kept++] = p;
  }
  pending_.resize(kept);
  return kept == 0;
}

void StepRunner::abandon() {
  for (size_t i = 0; i < hinted_.size(); i++) {
    if (hinted_[i] != nullptr) bound_->channels[i].recv->cancel_post();
  }
}

}  // namespace unisono
