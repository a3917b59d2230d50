// Operation: one piece of work of one communicator as a non-blocking state machine. Whoever holds
// the communicator's turn drives it (driver.h).
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "comm/control/control.h"

namespace unisono {

class Communicator;

enum class Advance { kIdle, kMoved, kDone };

class Operation {
 public:
  explicit Operation(Communicator& communicator) : communicator_(communicator) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Called once, when the communicator's turn has come, before the first advance.
  virtual Status start() = 0;
  // Does what can be done now. kDone: complete (call no more). Errors are sticky in the
  // communicator (fail()).
  virtual Advance advance() = 0;
  // After a failure, instead of further advances: nothing may touch the caller's memory afterwards.
  virtual void abandon() = 0;
  // Where it waits, for diagnosis; call.sequence is 0 for what has no sequence (send/recv).
  virtual StallReport stall() const = 0;
  // Adds to the report what others need to know to tell whether it can still end (send/recv).
  virtual void explain([[maybe_unused]] StallReport* report) const {}
  // What it is, for messages: "all_reduce #7 (float32, sum, count 100, ring)".
  virtual std::string describe() const = 0;

  Communicator& communicator() const { return communicator_; }
  uint64_t ticket = 0;     // its turn on the communicator
  int64_t timeout_ms = 0;  // from when it starts to wait

 private:
  Communicator& communicator_;
};

}  // namespace unisono
