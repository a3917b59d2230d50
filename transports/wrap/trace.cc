#include "transports/wrap/trace.h"

#include <algorithm>
#include <iterator>

#include "transports/wrap/forward.h"

namespace unisono {
namespace {

using wrap::ForwardRecv;
using wrap::ForwardSend;
using wrap::ForwardTransport;
using Kind = TraceEvent::Kind;

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kOpenSend:
      return "open-send";
    case Kind::kOpenRecv:
      return "open-recv";
    case Kind::kDone:
      return "send done";
    case Kind::kPosted:
      return "send posted";
    case Kind::kAgain:
      return "send again";
    case Kind::kCommit:
      return "commit";
    case Kind::kLend:
      return "lend";
    case Kind::kRelease:
      return "release";
    case Kind::kClose:
      return "close";
  }
  return "?";
}

struct Tracer {
  Env& env;
  std::shared_ptr<TraceLog> log;
  void note(Kind kind, const ChannelKey& key, const MessageHeader& header = {}) const {
    log->add({env.now_ns(), kind, key, header});
  }
};

class TraceSend final : public ForwardSend {
 public:
  TraceSend(SendEnd& inner, const ChannelKey& key, const Tracer& tracer)
      : ForwardSend(inner), key_(key), tracer_(tracer) {}
  SendOutcome send(const MessageHeader& header, const void* data) override {
    return noted(header, inner_.send(header, data));
  }
  SendOutcome send_reference(const MessageHeader& header, const void* data,
                             uint64_t registration) override {
    return noted(header, inner_.send_reference(header, data, registration));
  }
  void commit(const MessageHeader& header) override {
    inner_.commit(header);
    tracer_.note(Kind::kCommit, key_, header);
  }

 private:
  SendOutcome noted(const MessageHeader& header, SendOutcome outcome) {
    const Kind kind = outcome == SendOutcome::kDone     ? Kind::kDone
                      : outcome == SendOutcome::kPosted ? Kind::kPosted
                                                        : Kind::kAgain;
    tracer_.note(kind, key_, header);
    return outcome;
  }
  const ChannelKey key_;
  const Tracer& tracer_;
};

class TraceRecv final : public ForwardRecv {
 public:
  TraceRecv(RecvEnd& inner, const ChannelKey& key, const Tracer& tracer)
      : ForwardRecv(inner), key_(key), tracer_(tracer) {}
  bool lend(Message* message) override {
    if (!inner_.lend(message)) return false;
    header_ = message->header;
    if (!std::exchange(lent_, true)) tracer_.note(Kind::kLend, key_, header_);
    return true;
  }
  void release() override {
    inner_.release();
    lent_ = false;
    tracer_.note(Kind::kRelease, key_, header_);
  }

 private:
  const ChannelKey key_;
  const Tracer& tracer_;
  bool lent_ = false;
  MessageHeader header_;
};

class TraceTransport final : public ForwardTransport {
 public:
  TraceTransport(std::unique_ptr<Transport> inner, Env& env, std::shared_ptr<TraceLog> log)
      : ForwardTransport(std::move(inner)), tracer_{env, std::move(log)} {}
  bool progress() override {
    const bool moved = inner().progress();
    tracer_.log->progressed(moved);
    return moved;
  }
  bool arm() override {
    tracer_.log->armed();
    return inner().arm();
  }
  void close() override {
    inner().close();
    tracer_.note(Kind::kClose, {});
  }

 protected:
  std::unique_ptr<SendEnd> wrap_send(SendEnd& end, const ChannelKey& key,
                                     const ChannelShape&) override {
    tracer_.note(Kind::kOpenSend, key);
    return std::make_unique<TraceSend>(end, key, tracer_);
  }
  std::unique_ptr<RecvEnd> wrap_recv(RecvEnd& end, const ChannelKey& key,
                                     const ChannelShape&) override {
    tracer_.note(Kind::kOpenRecv, key);
    return std::make_unique<TraceRecv>(end, key, tracer_);
  }

 private:
  const Tracer tracer_;
};

}  // namespace

TraceLog::TraceLog(size_t capacity) : capacity_(std::max<size_t>(capacity, 1)) {}

TraceLog::Counts TraceLog::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::vector<TraceEvent> TraceLog::events() const {
  const std::lock_guard lock(mutex_);
  std::vector<TraceEvent> oldest_first = ring_;
  if (ring_.size() == capacity_) {
    std::rotate(oldest_first.begin(),
                oldest_first.begin() + static_cast<std::ptrdiff_t>(added_ % capacity_),
                oldest_first.end());
  }
  return oldest_first;
}

std::string TraceLog::text() const {
  const Counts sums = counts();
  const std::vector<TraceEvent> shown = events();
  std::string out = fmt::format(
      "sent {} messages, {} B ({} posted, {} again); received {}, {} B; progress {} of {} moved; "
      "{} arms\n",
      sums.sent, sums.sent_bytes, sums.posted, sums.again, sums.received, sums.received_bytes,
      sums.progress_moved, sums.progress, sums.arms);
  for (const TraceEvent& event : shown) {
    fmt::format_to(std::back_inserter(out), "{:>12.3f} us  {:<11} {}:{}>{}  {} B  {:#x}\n",
                   static_cast<double>(event.at_ns - shown.front().at_ns) / 1e3,
                   kind_name(event.kind), event.channel.number, event.channel.writer,
                   event.channel.reader, event.header.bytes, event.header.fingerprint);
  }
  return out;
}

void TraceLog::add(const TraceEvent& event) {
  const std::lock_guard lock(mutex_);
  switch (event.kind) {
    case Kind::kAgain:
      ++counts_.again;
      break;
    case Kind::kPosted:
      ++counts_.posted;
      [[fallthrough]];
    case Kind::kDone:
    case Kind::kCommit:
      ++counts_.sent;
      counts_.sent_bytes += event.header.bytes;
      break;
    case Kind::kRelease:
      ++counts_.received;
      counts_.received_bytes += event.header.bytes;
      break;
    default:
      break;
  }
  if (ring_.size() < capacity_) {
    ring_.push_back(event);
  } else {
    ring_[added_ % capacity_] = event;
  }
  ++added_;
}

void TraceLog::progressed(bool moved) {
  const std::lock_guard lock(mutex_);
  ++counts_.progress;
  if (moved) ++counts_.progress_moved;
}

void TraceLog::armed() {
  const std::lock_guard lock(mutex_);
  ++counts_.arms;
}

std::unique_ptr<Transport> wrap_trace(std::unique_ptr<Transport> inner, Env& env,
                                      std::shared_ptr<TraceLog> log) {
  return std::make_unique<TraceTransport>(std::move(inner), env, std::move(log));
}

}  // namespace unisono
