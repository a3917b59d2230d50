// ByteWriter and ByteReader: integers (little-endian), doubles and short strings to and from the
// bytes of a message.
//
// The reader takes a peer's bytes: it never reads past their end and reports, once asked, whether
// all was there.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace unisono {

class ByteWriter {
 public:
  template <class Integer>
  void put(Integer value) {
    static_assert(std::is_integral_v<Integer>);
    using Unsigned = std::make_unsigned_t<Integer>;
    auto bits = static_cast<Unsigned>(value);
    for (size_t i = 0; i < sizeof(Integer); ++i) {
      bytes_.push_back(static_cast<char>(bits & 0xff));
      bits = static_cast<Unsigned>(sizeof(Integer) == 1 ? 0 : bits >> 8);
    }
  }
  void put_double(double value) { put(std::bit_cast<uint64_t>(value)); }
  void put_bytes(std::string_view bytes) { bytes_.append(bytes); }
  void put_string(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    put_bytes(text);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <class Integer>
  Integer get() {
    using Unsigned = std::make_unsigned_t<Integer>;
    const std::string_view raw = get_bytes(sizeof(Integer));
    Unsigned bits = 0;
    for (size_t i = raw.size(); i-- > 0;) {
      bits = static_cast<Unsigned>((sizeof(Integer) == 1 ? 0 : bits << 8) |
                                   static_cast<unsigned char>(raw[i]));
    }
    return static_cast<Integer>(bits);
  }
  double get_double() { return std::bit_cast<double>(get<uint64_t>()); }
  // Empty, and the reader has failed, if fewer are left.
  std::string_view get_bytes(size_t count) {
    if (count > rest_.size()) {
      failed_ = true;
      rest_ = {};
      return {};
    }
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }
  std::string_view get_string(size_t most) {
    const auto length = get<uint32_t>();
    if (length > most) {
      failed_ = true;
      rest_ = {};
      return {};
    }
    return get_bytes(length);
  }
  bool ok() const { return !failed_; }
  bool done() const { return !failed_ && rest_.empty(); }  // all there and nothing left over
  size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace unisono
