#include "ddp/reducer/kept_gradients.h"

#include <cstring>

namespace unisono::ddp {
namespace {

bool is_zero(const std::byte* data, size_t bytes) {
  // Equal to itself one byte further on, and its first byte zero.
  return bytes == 0 || (data[0] == std::byte{0} && std::memcmp(data, data + 1, bytes - 1) == 0);
}

}  // namespace

void KeptGradients::keep_and_clear(int parameter, std::byte* data, size_t bytes) {
  Kept& kept = kept_[static_cast<size_t>(parameter)];
  kept.is_kept = true;
  if (is_zero(data, bytes)) return;
  kept.bytes = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::memcpy(kept.bytes.get(), data, bytes);
  std::memset(data, 0, bytes);
}

void KeptGradients::restore(int parameter, std::byte* data, size_t bytes) {
  Kept& kept = kept_[static_cast<size_t>(parameter)];
  if (!kept.is_kept || bytes == 0) return;
  if (kept.bytes == nullptr) {
    std::memset(data, 0, bytes);
  } else {
    std::memcpy(data, kept.bytes.get(), bytes);
  }
  kept = {};
}

}  // namespace unisono::ddp
