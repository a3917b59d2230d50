#include "comm/control/messages.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace unisono::control {
namespace {

enum Type : uint8_t { kError = 1, kStall = 2, kCompare = 3, kMail = 4, kLeft = 5 };

void put_call(ByteWriter& writer, const CallRecord& call) {
  writer.put(call.sequence);
  writer.put(call.fingerprint);
  writer.put(call.before);
  writer.put(call.count);
  writer.put(call.blocks_hash);
  writer.put(static_cast<uint8_t>(call.collective));
  writer.put(static_cast<uint8_t>(call.type));
  writer.put(static_cast<uint8_t>(call.op));
  writer.put(call.root);
  writer.put_bytes({call.algorithm, sizeof(call.algorithm)});
}

bool get_call(ByteReader& reader, CallRecord& call) {
  call.sequence = reader.get<uint64_t>();
  call.fingerprint = reader.get<uint64_t>();
  call.before = reader.get<uint64_t>();
  call.count = reader.get<uint64_t>();
  call.blocks_hash = reader.get<uint64_t>();
  const auto collective = reader.get<uint8_t>();
  const auto type = reader.get<uint8_t>();
  const auto op = reader.get<uint8_t>();
  call.root = reader.get<int32_t>();
  const std::string_view algorithm = reader.get_bytes(sizeof(call.algorithm));
  if (!reader.ok() || collective >= kCollectives || type >= kDataTypes || op >= kRedOps)
    return false;
  call.collective = static_cast<Collective>(collective);
  call.type = static_cast<DataType>(type);
  call.op = static_cast<RedOp>(op);
  for (size_t i = 0; i + 1 < sizeof(call.algorithm); ++i) {
    // It ends up in messages for people.
    const bool printable = algorithm[i] >= ' ' && algorithm[i] <= '~';
    call.algorithm[i] = printable || algorithm[i] == '\0' ? algorithm[i] : '?';
  }
  call.algorithm[sizeof(call.algorithm) - 1] = '\0';
  return true;
}

bool known_code(int32_t code) {
  return code >= static_cast<int32_t>(Code::kSystemError) &&
         code <= static_cast<int32_t>(Code::kMismatch) &&
         code != static_cast<int32_t>(Code::kInProgress);
}

class Parser {
 public:
  Parser(std::string_view bytes, int32_t ranks) : reader_(bytes), ranks_(ranks) {}

  std::optional<Message> run() {
    Message message;
    bool good = false;
    switch (reader_.get<uint8_t>()) {
      case kError:
        good = error(message.error.emplace());
        break;
      case kStall:
        good = stall(message.stall.emplace());
        break;
      case kCompare:
        good = compare(message.compare.emplace());
        break;
      case kMail:
        good = mail(message.mail.emplace());
        break;
      case kLeft:
        good = left(message.left.emplace());
        break;
      default:
        break;
    }
    if (!good || !reader_.done()) return std::nullopt;
    return message;
  }

 private:
  bool rank(int32_t& value) {
    value = reader_.get<int32_t>();
    return reader_.ok() && value >= 0 && value < ranks_;
  }

  bool error(ErrorMessage& message) {
    if (!rank(message.origin)) return false;
    const auto code = reader_.get<int32_t>();
    message.code = static_cast<Code>(code);
    message.text = reader_.get_string(kMaxText);
    return reader_.ok() && known_code(code);
  }

  bool stall(StallMessage& message) {
    if (!rank(message.from) || !get_call(reader_, message.report.call)) return false;
    message.report.step = reader_.get<int32_t>();
    message.report.lane = reader_.get<int32_t>();
    message.report.peer = reader_.get<int32_t>();
    message.report.suspicious = reader_.get<uint8_t>() != 0;
    message.report.last = reader_.get<uint64_t>();
    message.report.all_tallies = reader_.get<uint8_t>() != 0;
    return waits(message.report) && tallies(message.report);
  }

  bool waits(StallReport& report) {
    const auto count = reader_.get<uint32_t>();
    if (!reader_.ok() || count > kMaxPairWaits) return false;
    for (uint32_t i = 0; i < count; ++i) {
      PairWait wait;
      wait.receive = reader_.get<uint8_t>() != 0;
      wait.peer = reader_.get<int32_t>();
      wait.ordinal = reader_.get<uint64_t>();
      const auto type = reader_.get<uint8_t>();
      wait.count = reader_.get<uint64_t>();
      if (!reader_.ok() || wait.peer < -1 || wait.peer >= ranks_ || type >= kDataTypes) {
        return false;
      }
      wait.type = static_cast<DataType>(type);
      report.waits.push_back(wait);
    }
    return true;
  }

  bool tallies(StallReport& report) {
    const auto count = reader_.get<uint32_t>();
    if (!reader_.ok() || count > kMaxPairTallies) return false;
    for (uint32_t i = 0; i < count; ++i) {
      PairTally tally;
      if (!rank(tally.peer)) return false;
      tally.sent = reader_.get<uint64_t>();
      tally.received = reader_.get<uint64_t>();
      tally.open = reader_.get<uint64_t>();
      if (!reader_.ok()) return false;
      report.tallies.push_back(tally);
    }
    return true;
  }

  bool compare(CompareMessage& message) {
    message.sequence = reader_.get<uint64_t>();
    const auto sides = reader_.get<uint32_t>();
    if (!reader_.ok() || sides > kMaxRecords) return false;
    for (uint32_t i = 0; i < sides; ++i) {
      CompareMessage::Side side;
      if (!rank(side.from) || !get_call(reader_, side.call)) return false;
      if (side.call.sequence != message.sequence) return false;
      message.sides.push_back(side);
    }
    const auto arrived = reader_.get<uint32_t>();
    if (!reader_.ok() || arrived > kMaxArrived || reader_.left() != arrived * sizeof(int32_t)) {
      return false;
    }
    for (uint32_t i = 0; i < arrived; ++i) {
      int32_t value = 0;
      if (!rank(value)) return false;
      message.arrived.push_back(value);
    }
    return true;
  }

  bool mail(MailMessage& message) {
    if (!rank(message.from) || !rank(message.to)) return false;
    message.key = reader_.get_string(kMaxKey);
    message.payload = reader_.get_string(kMaxMail);
    return reader_.ok();
  }

  bool left(LeftMessage& message) {
    if (!rank(message.from)) return false;
    message.last = reader_.get<uint64_t>();
    return reader_.ok();
  }

  ByteReader reader_;
  int32_t ranks_;
};

ByteWriter begin(Type type) {
  ByteWriter writer;
  writer.put(static_cast<uint8_t>(type));
  return writer;
}

}  // namespace

std::string encode(const ErrorMessage& message) {
  ByteWriter writer = begin(kError);
  writer.put(message.origin);
  writer.put(static_cast<int32_t>(message.code));
  writer.put_string(std::string_view(message.text).substr(0, kMaxText));
  return writer.take();
}

std::string encode(const StallMessage& message) {
  ByteWriter writer = begin(kStall);
  writer.put(message.from);
  put_call(writer, message.report.call);
  writer.put(message.report.step);
  writer.put(message.report.lane);
  writer.put(message.report.peer);
  writer.put<uint8_t>(message.report.suspicious ? 1 : 0);
  writer.put(message.report.last);
  writer.put<uint8_t>(message.report.all_tallies ? 1 : 0);
  writer.put(static_cast<uint32_t>(message.report.waits.size()));
  for (const PairWait& wait : message.report.waits) {
    writer.put<uint8_t>(wait.receive ? 1 : 0);
    writer.put(wait.peer);
    writer.put(wait.ordinal);
    writer.put(static_cast<uint8_t>(wait.type));
    writer.put(wait.count);
  }
  writer.put(static_cast<uint32_t>(message.report.tallies.size()));
  for (const PairTally& tally : message.report.tallies) {
    writer.put(tally.peer);
    writer.put(tally.sent);
    writer.put(tally.received);
    writer.put(tally.open);
  }
  return writer.take();
}

std::string encode(const CompareMessage& message) {
  ByteWriter writer = begin(kCompare);
  writer.put(message.sequence);
  writer.put(static_cast<uint32_t>(message.sides.size()));
  for (const auto& side : message.sides) {
    writer.put(side.from);
    put_call(writer, side.call);
  }
  writer.put(static_cast<uint32_t>(message.arrived.size()));
  for (const int32_t rank : message.arrived) writer.put(rank);
  return writer.take();
}

std::string encode(const MailMessage& message) {
  ByteWriter writer = begin(kMail);
  writer.put(message.from);
  writer.put(message.to);
  writer.put_string(message.key);
  writer.put_string(message.payload);
  return writer.take();
}

std::string encode(const LeftMessage& message) {
  ByteWriter writer = begin(kLeft);
  writer.put(message.from);
  writer.put(message.last);
  return writer.take();
}

std::optional<Message> parse(std::string_view bytes, int32_t ranks) {
  return Parser(bytes, ranks).run();
}

}  // namespace unisono::control
