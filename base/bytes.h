// ByteWriter and ByteReader: little-endian fields for messages between ranks. A reader never trusts
// a length: each read says whether the bytes were there, and a failed reader stays failed.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace unisono {

class ByteWriter {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_string(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}
  template <class T>
  bool get(T* value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!ok_ || rest_.size() < sizeof(T)) return ok_ = false;
    std::memcpy(value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return true;
  }
  // At most `limit` bytes; a longer length in the message is a failure.
  bool get_string(std::string* text, size_t limit) {
    uint32_t length = 0;
    if (!get(&length) || length > limit || length > rest_.size()) return ok_ = false;
    text->assign(rest_.data(), length);
    rest_.remove_prefix(length);
    return true;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace unisono
