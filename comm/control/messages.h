// What control sends: five kinds of message, their bytes, and a parser that believes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/control.h"

namespace unisono::control {

inline constexpr size_t kMaxText = 4096;
inline constexpr size_t kMaxKey = 256;
inline constexpr size_t kMaxMail = kMaxControlMessageBytes - 1024;
inline constexpr size_t kMaxRecords =
    4;  // of one comparison: two differing ones are enough to fail
inline constexpr size_t kMaxArrived = 16384;  // ranks named by one comparison

// One error, flooded to every rank.
struct ErrorMessage {
  int32_t origin = 0;
  Code code = Code::kInternalError;
  std::string text;
};
// A waiting rank's report, on its way up to rank 0.
struct StallMessage {
  int32_t from = 0;
  StallReport report;
};
// Rank 0's question to every rank: is your record of this sequence one of these?
struct CompareMessage {
  struct Side {
    int32_t from = 0;
    CallRecord call;
  };
  uint64_t sequence = 0;
  std::vector<Side>
      sides;  // at most kMaxRecords, with different fingerprints, all of this sequence
  std::vector<int32_t> arrived;  // at most kMaxArrived
};
struct MailMessage {
  int32_t from = 0, to = 0;
  std::string key, payload;
};

// A rank leaves in order, after its collective number `last`; flooded.
struct LeftMessage {
  int32_t from = 0;
  uint64_t last = 0;
};

// Exactly one is set.
struct Message {
  std::optional<ErrorMessage> error;
  std::optional<StallMessage> stall;
  std::optional<CompareMessage> compare;
  std::optional<MailMessage> mail;
  std::optional<LeftMessage> left;
};

std::string encode(const ErrorMessage& message);  // cuts the text to kMaxText
std::string encode(const StallMessage& message);
std::string encode(const CompareMessage& message);
std::string encode(const MailMessage& message);
std::string encode(const LeftMessage& message);
// Empty: malformed, or it names a rank outside 0..ranks-1. Takes no memory beyond the message's own
// size.
std::optional<Message> parse(std::string_view bytes, int32_t ranks);

}  // namespace unisono::control
