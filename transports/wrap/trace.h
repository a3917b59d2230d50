// trace: counts what passes and remembers the latest events, for tests and for who debugs a
// transport.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transports/transport.h"

namespace unisono {

struct TraceEvent {
  enum class Kind : uint8_t {
    kOpenSend,
    kOpenRecv,
    kDone,
    kPosted,
    kAgain,
    kCommit,
    kLend,
    kRelease,
    kClose,
  };
  int64_t at_ns = 0;
  Kind kind = Kind::kOpenSend;
  ChannelKey channel;
  MessageHeader header;
};

// What one traced transport did. Shared by the wrapper and whoever reads it. Any thread.
class TraceLog {
 public:
  struct Counts {
    uint64_t sent = 0, sent_bytes = 0;  // accepted messages
    uint64_t posted = 0, again = 0;
    uint64_t received = 0, received_bytes = 0;  // released messages
    uint64_t progress = 0, progress_moved = 0, arms = 0;
  };
  explicit TraceLog(size_t capacity = 1024);
  Counts counts() const;
  std::vector<TraceEvent> events() const;  // oldest first, at most `capacity`
  std::string text() const;  // the counts, then a line an event, times since the first one shown

  void add(const TraceEvent& event);
  void progressed(bool moved);
  void armed();

 private:
  mutable std::mutex mutex_;
  Counts counts_;
  std::vector<TraceEvent> ring_;
  const size_t capacity_;
  uint64_t added_ = 0;
};

// `env` gives the events their times; it and the log outlive the wrapper.
std::unique_ptr<Transport> wrap_trace(std::unique_ptr<Transport> inner, Env& env,
                                      std::shared_ptr<TraceLog> log);

}  // namespace unisono
