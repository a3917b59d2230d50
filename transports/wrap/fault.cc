#include "transports/wrap/fault.h"

#include <algorithm>

#include "transports/wrap/forward.h"

namespace unisono {
namespace {

using wrap::ForwardRecv;
using wrap::ForwardSend;
using wrap::ForwardTransport;

// splitmix64: the same numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  bool chance(double probability) {
    return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability;
  }

 private:
  uint64_t state_;
};

struct FaultState {
  explicit FaultState(const FaultOptions& chosen) : options(chosen), random(chosen.seed) {
    options.again_probability = std::clamp(options.again_probability, 0.0, 0.99);
    options.delay_calls = std::max(options.delay_calls, 0);
  }
  bool concerns(int32_t peer) const {
    return options.fail_peer >= 0 && (peer == options.fail_peer || peer == kEveryone);
  }
  // A message moved on a channel whose other end is `peer` (or everyone).
  void count(int32_t peer) {
    if (concerns(peer)) ++messages;
  }
  bool about_to_fail(int32_t peer) {
    if (!concerns(peer)) return false;
    if (messages >= options.fail_after) fail();
    return !failure.ok();
  }
  void fail() {
    if (!failure.ok()) return;
    failure = error(Code::kRemoteError, "fault: link to rank {} failed after {} messages",
                    options.fail_peer, messages);
    withheld = true;
  }

  FaultOptions options;
  Random random;
  uint64_t messages = 0;
  uint64_t calls = 0;     // of progress()
  bool withheld = false;  // something was refused or hidden: nobody may sleep on it
  Status failure;
};

class FaultSend final : public ForwardSend {
 public:
  FaultSend(SendEnd& inner, int32_t peer, FaultState& state)
      : ForwardSend(inner), peer_(peer), state_(state) {}
  SendOutcome send(const MessageHeader& header, const void* data) override {
    if (refuses()) return SendOutcome::kAgain;
    return counted(inner_.send(header, data));
  }
  SendOutcome send_reference(const MessageHeader& header, const void* data,
                             uint64_t registration) override {
    if (refuses()) return SendOutcome::kAgain;
    return counted(inner_.send_reference(header, data, registration));
  }
  std::byte* reserve() override {
    if (!reserved_ && refuses()) return nullptr;  // a slot once shown stays
    std::byte* slot = inner_.reserve();
    reserved_ = slot != nullptr;
    return slot;
  }
  void commit(const MessageHeader& header) override {
    reserved_ = false;
    inner_.commit(header);
    state_.count(peer_);
  }

 private:
  bool refuses() {
    if (!state_.failure.ok() || state_.about_to_fail(peer_)) return true;
    if (!state_.random.chance(state_.options.again_probability)) return false;
    state_.withheld = true;
    return true;
  }
  SendOutcome counted(SendOutcome outcome) {
    if (outcome != SendOutcome::kAgain) state_.count(peer_);
    return outcome;
  }
  const int32_t peer_;
  FaultState& state_;
  bool reserved_ = false;
};

// Looks into the inner transport only at moments chosen by the seed, and never lends a message that
// it then hides: that would use up the caller's post().
class FaultRecv final : public ForwardRecv {
 public:
  FaultRecv(RecvEnd& inner, int32_t peer, FaultState& state)
      : ForwardRecv(inner), peer_(peer), state_(state) {}

  bool lend(Message* message) override {
    if (shown_) return inner_.lend(message);
    if (!state_.failure.ok() || state_.about_to_fail(peer_)) return false;
    if (state_.calls < look_at_) {
      state_.withheld = true;
      return false;
    }
    const auto most = static_cast<uint64_t>(state_.options.delay_calls);
    look_at_ = state_.calls + state_.random.next() % (most + 1);
    if (!inner_.lend(message)) return false;
    shown_ = true;
    state_.count(peer_);
    return true;
  }
  void release() override {
    shown_ = false;
    inner_.release();
  }

 private:
  const int32_t peer_;
  FaultState& state_;
  bool shown_ = false;
  uint64_t look_at_ = 0;  // not before this many progress() calls
};

class FaultTransport final : public ForwardTransport {
 public:
  FaultTransport(std::unique_ptr<Transport> inner, const FaultOptions& options)
      : ForwardTransport(std::move(inner)), state_(options) {}

  bool progress() override {
    if (!state_.failure.ok()) return false;
    ++state_.calls;
    return inner().progress();
  }
  bool arm() override {
    const bool stay = inner().arm();
    return std::exchange(state_.withheld, false) || stay;
  }
  Status status() const override { return state_.failure.ok() ? inner().status() : state_.failure; }

 protected:
  std::unique_ptr<SendEnd> wrap_send(SendEnd& end, const ChannelKey& key,
                                     const ChannelShape&) override {
    return std::make_unique<FaultSend>(end, key.reader, state_);
  }
  std::unique_ptr<RecvEnd> wrap_recv(RecvEnd& end, const ChannelKey& key,
                                     const ChannelShape&) override {
    return std::make_unique<FaultRecv>(end, key.writer, state_);
  }

 private:
  FaultState state_;
};

}  // namespace

std::unique_ptr<Transport> wrap_fault(std::unique_ptr<Transport> inner,
                                      const FaultOptions& options) {
  return std::make_unique<FaultTransport>(std::move(inner), options);
}

}  // namespace unisono
