// Library: NCCL and the CUDA runtime, loaded at run time.
#pragma once

#include <string>

#include "base/status.h"
#include "transports/nccl/api.h"

namespace unisono::nccl {

class Library {
 public:
  // Loads both on the first call of the process; any thread. Loading does not initialise CUDA.
  // Fails with one line that says which of them is missing or too old.
  static Result<const Library*> load();

  const Functions& functions() const { return functions_; }
  int version() const { return version_; }
  std::string describe() const;

  // Ok, kInProgress, or NCCL's error in words: "ncclAllReduce: internal error (...)". `comm` may be
  // null.
  Status check(NcclResult result, const char* call, Comm* comm) const;
  // The same of the CUDA runtime, whose remembered error is cleared: it has been told.
  Status check(CudaResult result, const char* call) const;

 private:
  Status open();
  Functions functions_;
  int version_ = 0, cuda_version_ = 0;
};

// "2.28.9" of 22809.
std::string version_words(int version);

}  // namespace unisono::nccl
