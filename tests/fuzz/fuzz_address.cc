// Any bytes as an endpoint's address and as the text of an address: refused, or understood and
// written back the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/net/endpoint_address.h"

using namespace unisono::net;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto address = decode_address(bytes); address.ok()) {
    CHECK(address->tcp.size() <= kMaxPublishedAddresses && size <= kMaxAddressBytes);
    CHECK(encode_address(*address) == bytes);
    for (const Address& one : address->tcp) {
      CHECK(!one.text().empty());
      (void)is_loopback(one);
      (void)is_link_local(one);
    }
  }
  // Numeric only, so that no input makes the fuzzer ask a name server.
  if (const auto address = parse_address(bytes, 4711); address.ok()) {
    CHECK(address->text().find(":4711") != std::string::npos);
  }
  return 0;
}
