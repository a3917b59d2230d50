// With bucket views a parameter that is unused here must give zeros to the sum, although its
// gradient, which lies there, may have to stay: its bytes are kept aside until the ranks know.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace unisono::ddp {

// Threads: keep_and_clear() for different parameters at once; restore() alone.
class KeptGradients {
 public:
  explicit KeptGradients(size_t parameters) : kept_(parameters) {}
  // Zeroes `bytes` at data; takes a copy first unless they are zeros already.
  void keep_and_clear(int parameter, std::byte* data, size_t bytes);
  // Writes what was there before, and forgets it.
  void restore(int parameter, std::byte* data, size_t bytes);
  void forget(int parameter) { kept_[static_cast<size_t>(parameter)] = {}; }

 private:
  struct Kept {
    bool is_kept = false;
    std::unique_ptr<std::byte[]> bytes;  // Null: zeros.
  };
  std::vector<Kept> kept_;
};

}  // namespace unisono::ddp
