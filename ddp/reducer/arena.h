// The memory of all buckets: shareable and registered, so that peers on this machine read it in
// place.
#pragma once

#include <cstddef>
#include <memory>

#include "ddp/status.h"

namespace unisono::ddp {

class Arena {
 public:
  // Zeroed. comm is borrowed for the arena's life. Local, not collective.
  static Status create(uniComm_t comm, size_t bytes, std::unique_ptr<Arena>* arena);
  ~Arena();  // No operation may use it any more.
  Arena(const Arena&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  explicit Arena(uniComm_t comm) : comm_(comm) {}
  const uniComm_t comm_;
  void* memory_ = nullptr;
  void* registration_ = nullptr;
};

}  // namespace unisono::ddp
