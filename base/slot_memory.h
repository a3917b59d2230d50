// Memory of a message's slot in transports that have slots of their own (tcp, ucx).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/check.h"

namespace unisono {

// 64-byte aligned, grows when it is needed; its size is counted in a total that outlives it. One
// thread at a time.
class SlotMemory {
 public:
  // A slot's first size is that of its message, up to this; beyond it the whole slice at once.
  static constexpr uint32_t kSmallBytes = 4096;

  SlotMemory() = default;
  SlotMemory(SlotMemory&& other) noexcept
      : bytes_(std::move(other.bytes_)),
        capacity_(std::exchange(other.capacity_, 0)),
        total_(std::exchange(other.total_, nullptr)) {}
  SlotMemory& operator=(SlotMemory&&) = delete;
  ~SlotMemory() {
    if (total_ != nullptr) *total_ -= capacity_;
  }

  // At least `bytes`; growing loses the contents.
  std::byte* ensure(size_t bytes, size_t& total) {
    if (bytes <= capacity_) return bytes_.get();
    const size_t rounded = (bytes + 63) / 64 * 64;
    bytes_.reset();  // before the new one is taken: the old contents are not needed
    bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(64, rounded)));
    CHECK(bytes_ != nullptr);
    total += rounded - capacity_;
    capacity_ = rounded;
    total_ = &total;
    return bytes_.get();
  }
  // For a message of `bytes` on a channel of such slices.
  std::byte* ensure_slot(uint32_t bytes, uint32_t slice_bytes, size_t& total) {
    const uint32_t least = bytes <= kSmallBytes ? std::min(kSmallBytes, slice_bytes) : slice_bytes;
    return ensure(std::max<uint32_t>(least, 64), total);
  }
  std::byte* data() { return bytes_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte[], Free> bytes_;
  size_t capacity_ = 0;
  size_t* total_ = nullptr;
};

}  // namespace unisono
