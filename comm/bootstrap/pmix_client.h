// PMIx, loaded at run time: how ranks of Open MPI's and Slurm's process managers exchange values.
//
// Nothing of PMIx is needed to build. What is used of its C interface, by its standard's numbers
// (versions 3 to 5), is declared in pmix_client.cc.
#pragma once

#include <string>

#include "base/status.h"

namespace unisono::bootstrap {

// Blocks, without a deadline of ours where PMIx has none. Counts as one more user of PMIx beside an
// MPI in the same process.
class PmixClient {
 public:
  // kInvalidUsage: there is no PMIx library here; kRemoteError: no server answers it.
  static Result<PmixClient> start();
  Status put(const std::string& key, const std::string& value);
  // All ranks of the job call it; what was put before it can be got after it.
  Status fence(int64_t deadline_ns);
  Result<std::string> get(int32_t rank, const std::string& key, int64_t deadline_ns);
  void finish();

 private:
  struct Library;
  explicit PmixClient(const Library* library) : library_(library) {}

  const Library* library_;
  char space_[256] = {};  // pmix_nspace_t: the job's name
};

}  // namespace unisono::bootstrap
