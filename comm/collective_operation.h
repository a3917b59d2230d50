// CollectiveOperation: one collective call in progress, by the small path or by lanes. Reused: the
// communicator keeps one for blocking calls.
#pragma once

#include "comm/communicator.h"
#include "comm/lane_executor.h"
#include "comm/operation.h"
#include "comm/small_executor.h"

namespace unisono {

class CollectiveOperation : public Operation {
 public:
  explicit CollectiveOperation(Communicator& communicator)
      : Operation(communicator), small_(communicator), lanes_(communicator) {}

  void set(const Call& call) { call_ = call; }
  Status start() override;
  // Instead of start(): the call has been issued and recorded, and the first steps of its small
  // program are done (comm/express.h). `posted`: memory of the last one's message, if it is still
  // read.
  void resume(const Communicator::Prepared& prepared, uint64_t sequence, uint64_t fingerprint,
              size_t steps_done, const void* posted);
  Advance advance() override { return use_small_ ? small_.advance() : lanes_.advance(); }
  StallReport stall() const override;
  std::string describe() const override { return unisono::describe(stall().call); }
  void abandon() override;

 private:
  Call call_;
  const BoundPlan* bound_ = nullptr;
  uint64_t sequence_ = 0, fingerprint_ = 0;
  bool use_small_ = false;
  SmallExecutor small_;
  LaneExecutor lanes_;
};

}  // namespace unisono
