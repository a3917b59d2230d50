// Which parameters were used: on this rank since the last synchronised iteration, and on any rank
// in it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ddp/status.h"

namespace unisono::ddp {

// Threads: note() and used_here() for different parameters at once; the others alone.
class UsedMap {
 public:
  explicit UsedMap(size_t parameters) : here_(parameters), anywhere_(parameters, 1) {}
  void note(int parameter) { here_[static_cast<size_t>(parameter)] = 1; }
  bool used_here(int parameter) const { return here_[static_cast<size_t>(parameter)] != 0; }
  bool used_anywhere(int parameter) const { return anywhere_[static_cast<size_t>(parameter)] != 0; }

  // Puts the all-reduce on the stream; valid once that is done. used_anywhere() is then the result.
  Status launch(uniComm_t comm, uniStream_t stream) {
    anywhere_ = here_;
    return called(uniAllReduce(anywhere_.data(), anywhere_.data(), anywhere_.size(), uniUint8,
                               uniMax, comm, stream));
  }
  size_t wire_bytes() const { return here_.size(); }
  // The synchronised iteration is over.
  void forget() { here_.assign(here_.size(), 0); }

  // Of the static graph: what is never used here, from what was not used so far.
  std::vector<uint8_t> unused_here() const {
    std::vector<uint8_t> unused(here_.size());
    for (size_t i = 0; i < here_.size(); i++) unused[i] = here_[i] == 0 ? 1 : 0;
    return unused;
  }
  int unused_everywhere() const {
    int count = 0;
    for (const uint8_t used : anywhere_) count += used == 0 ? 1 : 0;
    return count;
  }

 private:
  std::vector<uint8_t> here_, anywhere_;
};

}  // namespace unisono::ddp
