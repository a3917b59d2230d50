// Control's messages: whatever a peer sends is parsed without harm, and what is parsed means the
// same once encoded again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "comm/control/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace unisono::control;
  constexpr int32_t kRanks = 1000;
  const auto message = parse({reinterpret_cast<const char*>(data), size}, kRanks);
  if (!message) return 0;
  std::string bytes;
  if (message->error) bytes = encode(*message->error);
  if (message->stall) bytes = encode(*message->stall);
  if (message->compare) bytes = encode(*message->compare);
  if (message->mail) bytes = encode(*message->mail);
  if (message->left) bytes = encode(*message->left);
  const auto again = parse(bytes, kRanks);
  CHECK(again.has_value());
  CHECK(again->error.has_value() == message->error.has_value());
  CHECK(again->stall.has_value() == message->stall.has_value());
  CHECK(again->compare.has_value() == message->compare.has_value());
  CHECK(again->mail.has_value() == message->mail.has_value());
  CHECK(again->left.has_value() == message->left.has_value());
  if (message->stall) {
    CHECK(again->stall->report.waits.size() == message->stall->report.waits.size());
    CHECK(again->stall->report.tallies.size() == message->stall->report.tallies.size());
  }
  if (message->mail) CHECK(again->mail->payload == message->mail->payload);
  return 0;
}
