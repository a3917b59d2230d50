// StepRunner: does the work of one plan step on real buffers: reduce, copy, send, release. Shared
// by the lane executor and the small path, so that both run the same code on the same data.
//
// A step has two stages. First its sources are combined into its destination or, where the
// transport likes that better, straight into the outgoing slot; then what is not yet sent is sent
// from the destination's memory (tcp, and by reference).
#pragma once

#include <cstdint>
#include <vector>

#include "comm/bound_plan.h"
#include "comm/call.h"
#include "comm/geometry.h"
#include "comm/reduce/kernels.h"

namespace unisono {

class Communicator;

// Memory of this rank that a posted or by-reference send still reads.
struct PendingSend {
  const SendEnd* end = nullptr;
  uint64_t ordinal = 0;  // complete when end->completed() >= ordinal
  const std::byte* begin = nullptr;
  const std::byte* finish = nullptr;
};

class StepRunner {
 public:
  explicit StepRunner(Communicator& communicator) : communicator_(communicator) {}

  // Prepares for one call; everything is borrowed until the call is complete.
  void begin(const BoundPlan& bound, const Call& call, const Geometry& geometry,
             uint64_t fingerprint);
  // Runs the step for one round as far as its messages and credit allow. True: the step is done.
  // False: not yet; call again with the same *combined (false at first), which says whether the
  // first stage is over.
  bool try_step(const Step& step, uint64_t round, bool* combined);
  // True when no send reads the caller's memory any more.
  bool sends_complete();
  // After a failure: takes back hints, so that no late message lands in the caller's memory.
  void abandon();
  int32_t waiting_for() const { return waiting_for_; }  // peer of the last failed try; -1 unknown
  // A message of another operation was met; the operation cannot go on (the communicator has been
  // told).
  bool mismatch() const { return mismatch_; }

 private:
  std::byte* block_address(const Chunk& chunk, int32_t offset, uint64_t round) const;
  int32_t blocks_of(const Chunk& chunk) const;
  int32_t block_index(const Chunk& chunk, int32_t offset) const;
  bool contiguous(const Chunk& chunk) const;
  uint64_t step_elements(const Step& step, uint64_t round) const;
  bool lend_all(const Step& step, uint64_t round, uint64_t bytes);
  bool lend_one(const BoundChannel& channel, uint64_t bytes, const std::byte** data);
  void hint(const Step& step, uint64_t round, uint64_t bytes);
  bool overlaps_pending(const std::byte* begin, const std::byte* finish);
  bool destination_busy(const Step& step, uint64_t round);
  bool needs_kernel(const Step& step) const;
  uint64_t reference_of(const BoundChannel& channel, const std::byte* data, uint64_t bytes) const;
  bool direct_send(const Step& step, uint64_t round, uint64_t bytes, bool* done);
  bool send_memory(const BoundChannel& channel, const std::byte* data, uint64_t bytes);
  void combine(const Step& step, uint64_t round, std::byte* slot);
  void combine_piece(const Step& step, uint64_t round, int32_t offset, uint64_t packed,
                     std::byte* out, std::byte* also, uint64_t elements);
  void release(const Step& step);
  bool outgrows_cache(uint64_t span) const;
  void grow_scratch();

  Communicator& communicator_;
  const BoundPlan* bound_ = nullptr;
  Call call_;
  Geometry geometry_;
  uint64_t fingerprint_ = 0;
  uint64_t element_bytes_ = 1;
  bool has_op_ = false;       // the collective reduces
  bool prescale_ = false;     // a pre-multiplied sum
  bool stream_ = false;       // the buffers outgrow the shared cache
  bool stream_slot_ = false;  // of the present step: as its transport likes it
  ReduceFn kernel_ = nullptr;
  std::vector<const std::byte*> lent_;  // per operand of the present step
  std::vector<const void*> operands_;
  std::vector<uint8_t> prescale_flags_;
  std::vector<PendingSend> pending_;
  std::vector<std::byte> scratch_;
  std::vector<size_t> scratch_at_;   // first byte of each lane's scratch
  std::vector<const Step*> hinted_;  // per channel: the step whose receive was hinted
  std::vector<uint64_t> hinted_round_;
  int32_t waiting_for_ = -1;
  bool mismatch_ = false;
};

}  // namespace unisono
