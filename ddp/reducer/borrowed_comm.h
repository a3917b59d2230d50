// A communicator that is borrowed: uniCommDestroy is refused meanwhile.
#pragma once

#include "unisono/unisono.h"

namespace unisono::ddp {

// Owner: the borrower, whose last member to go it must be. Not copied, not moved.
class BorrowedComm {
 public:
  explicit BorrowedComm(uniComm_t comm)
      : comm_(comm), borrowed_(uniCommBorrow(comm, kBy) == uniSuccess) {}
  ~BorrowedComm() {
    if (borrowed_) (void)uniCommReturn(comm_, kBy);
  }
  BorrowedComm(const BorrowedComm&) = delete;
  BorrowedComm& operator=(const BorrowedComm&) = delete;
  operator uniComm_t() const { return comm_; }  // NOLINT(google-explicit-constructor)

 private:
  static constexpr const char* kBy = "a reducer: uniReducerDestroy comes first";
  const uniComm_t comm_;
  const bool borrowed_;
};

}  // namespace unisono::ddp
