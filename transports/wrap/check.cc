#include "transports/wrap/check.h"

#include <algorithm>
#include <cstdint>
#include <deque>

#include "transports/wrap/forward.h"

namespace unisono {
namespace {

using wrap::ForwardRecv;
using wrap::ForwardSend;
using wrap::ForwardTransport;

uint64_t hash_bytes(const void* data, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3u;
  return hash;
}

struct CheckState {
  int32_t rank = 0;
  std::shared_ptr<CheckLedger> ledger;
  bool closed = false;
  Status violation;

  template <class... Args>
  void wrong(const ChannelKey& key, fmt::format_string<Args...> format, Args&&... args) {
    if (!violation.ok()) return;
    violation =
        error(Code::kInternalError, "check: rank {}, channel {} of {} to {}: {}", rank, key.number,
              key.writer, key.reader, fmt::format(format, std::forward<Args>(args)...));
  }
};

class CheckSend final : public ForwardSend {
 public:
  CheckSend(SendEnd& inner, const ChannelKey& key, const ChannelShape& shape, CheckState& state)
      : ForwardSend(inner), key_(key), shape_(shape), state_(state) {}

  SendOutcome send(const MessageHeader& header, const void* data) override {
    if (!callable(header, data)) return SendOutcome::kAgain;
    return judged(header, data, false, [&] { return inner_.send(header, data); });
  }
  SendOutcome send_reference(const MessageHeader& header, const void* data,
                             uint64_t registration) override {
    if (registration == 0) state_.wrong(key_, "send_reference with registration 0");
    if (!callable(header, data)) return SendOutcome::kAgain;
    return judged(header, data, true,
                  [&] { return inner_.send_reference(header, data, registration); });
  }
  std::byte* reserve() override {
    if (state_.closed) {
      state_.wrong(key_, "reserve after close");
      return nullptr;
    }
    std::byte* slot = inner_.reserve();
    if (reserved_ != nullptr && slot != reserved_) {
      state_.wrong(key_, "reserve is not idempotent: another slot before commit");
    }
    if (reinterpret_cast<uintptr_t>(slot) % 64 != 0) state_.wrong(key_, "a slot is not aligned");
    return reserved_ = slot;
  }
  void commit(const MessageHeader& header) override {
    if (reserved_ == nullptr) return state_.wrong(key_, "commit without a reserved slot");
    const std::byte* slot = std::exchange(reserved_, nullptr);
    if (!callable(header, slot)) return;
    note_sent(header, slot);
    const uint64_t before = inner_.accepted();
    inner_.commit(header);
    if (inner_.accepted() != before + 1) state_.wrong(key_, "commit was not counted in accepted");
  }
  uint64_t completed() const override {
    const uint64_t now = inner_.completed();
    if (now > inner_.accepted()) state_.wrong(key_, "completed exceeds accepted");
    if (now < last_completed_) state_.wrong(key_, "completed went back");
    last_completed_ = std::max(last_completed_, now);
    while (!posted_.empty() && posted_.front().count <= now) {
      const Posted& post = posted_.front();
      if (hash_bytes(post.data, post.bytes) != post.hash) {
        state_.wrong(key_, "posted memory was changed before its send had completed");
      }
      posted_.pop_front();
    }
    return now;
  }

 private:
  struct Posted {
    uint64_t count;  // free when completed() reaches it
    const void* data;
    size_t bytes;
    uint64_t hash;
  };
  bool callable(const MessageHeader& header, const void* data) {
    if (state_.closed) {
      state_.wrong(key_, "send after close");
    } else if (reserved_ != nullptr) {
      state_.wrong(key_, "send while a slot is reserved");
    } else if (header.bytes > shape_.slice_bytes) {
      state_.wrong(key_, "a message of {} B in slices of {} B", header.bytes, shape_.slice_bytes);
    } else if (header.bytes > 0 && data == nullptr) {
      state_.wrong(key_, "a message of {} B at null", header.bytes);
    } else {
      return true;
    }
    return false;
  }
  template <class Send>
  SendOutcome judged(const MessageHeader& header, const void* data, bool reference, Send send) {
    const uint64_t before = inner_.accepted();
    // Before the transport may show it to a reader.
    const bool ledgered = state_.ledger != nullptr;
    const uint64_t hash = hash_bytes(data, header.bytes);
    if (ledgered) state_.ledger->sent(key_, header, hash);
    const SendOutcome outcome = send();
    const uint64_t more = inner_.accepted() - before;
    if (more != (outcome == SendOutcome::kAgain ? 0u : 1u)) {
      state_.wrong(key_, "accepted moved by {} in one send", more);
    }
    if (outcome == SendOutcome::kAgain && ledgered) state_.ledger->unsent(key_);
    if (outcome == SendOutcome::kPosted) {
      posted_.push_back({before + 1, data, header.bytes, hash});
    } else if (outcome == SendOutcome::kDone && reference &&
               hash_bytes(data, header.bytes) != hash) {
      state_.wrong(key_, "a send changed its memory");
    }
    return outcome;
  }
  void note_sent(const MessageHeader& header, const void* data) {
    if (state_.ledger == nullptr) return;
    state_.ledger->sent(key_, header, hash_bytes(data, header.bytes));
  }

  const ChannelKey key_;
  const ChannelShape shape_;
  CheckState& state_;
  std::byte* reserved_ = nullptr;
  mutable uint64_t last_completed_ = 0;
  mutable std::deque<Posted> posted_;
};

class CheckRecv final : public ForwardRecv {
 public:
  CheckRecv(RecvEnd& inner, const ChannelKey& key, const ChannelShape& shape, CheckState& state)
      : ForwardRecv(inner), key_(key), shape_(shape), state_(state) {}

  bool lend(Message* message) override {
    if (state_.closed) {
      state_.wrong(key_, "lend after close");
      return false;
    }
    if (!inner_.lend(message)) {
      if (lent_) state_.wrong(key_, "lend is not idempotent: the lent message is gone");
      return false;
    }
    if (message->header.bytes > shape_.slice_bytes) {
      state_.wrong(key_, "{} B were delivered in slices of {} B", message->header.bytes,
                   shape_.slice_bytes);
      return false;
    }
    if (lent_) {
      if (message->data != now_.data || message->header.bytes != now_.header.bytes ||
          message->header.fingerprint != now_.header.fingerprint) {
        state_.wrong(key_, "lend is not idempotent: another message before release");
      }
      return true;
    }
    lent_ = true;
    now_ = *message;
    if (state_.ledger != nullptr) {
      const std::string fault = state_.ledger->received(key_, state_.rank, now_.header,
                                                        hash_bytes(now_.data, now_.header.bytes));
      if (!fault.empty()) state_.wrong(key_, "{}", fault);
    }
    return true;
  }
  void release() override {
    if (state_.closed) return state_.wrong(key_, "release after close");
    if (!lent_) return state_.wrong(key_, "release without a lent message");
    lent_ = false;
    inner_.release();
  }
  void post(void* buffer, uint32_t bytes) override {
    if (state_.closed) return state_.wrong(key_, "post after close");
    if (buffer == nullptr || bytes > shape_.slice_bytes) {
      return state_.wrong(key_, "post of {} B in slices of {} B", bytes, shape_.slice_bytes);
    }
    inner_.post(buffer, bytes);
  }

 private:
  const ChannelKey key_;
  const ChannelShape shape_;
  CheckState& state_;
  bool lent_ = false;
  Message now_;
};

class CheckTransport final : public ForwardTransport {
 public:
  CheckTransport(std::unique_ptr<Transport> inner, int32_t rank,
                 std::shared_ptr<CheckLedger> ledger)
      : ForwardTransport(std::move(inner)) {
    state_.rank = rank;
    state_.ledger = std::move(ledger);
  }
  std::string address() const override {
    std::string address = inner().address();
    if (address.size() > 4096) {
      state_.wrong({}, "an address of {} B, at most 4096 are allowed", address.size());
    }
    return address;
  }
  Result<SendEnd*> open_send(const ChannelKey& key, const ChannelShape& shape) override {
    if (state_.closed) state_.wrong(key, "open_send after close");
    TRY(state_.violation);
    return ForwardTransport::open_send(key, shape);
  }
  Result<RecvEnd*> open_recv(const ChannelKey& key, const ChannelShape& shape) override {
    if (state_.closed) state_.wrong(key, "open_recv after close");
    TRY(state_.violation);
    return ForwardTransport::open_recv(key, shape);
  }
  Result<uint64_t> register_memory(const Region& region) override {
    TRY_ASSIGN(const uint64_t registration, inner().register_memory(region));
    if (registration == 0) state_.wrong({}, "register_memory returned 0");
    return registration;
  }
  bool progress() override {
    if (state_.closed) state_.wrong({}, "progress after close");
    return state_.violation.ok() && inner().progress();
  }
  Status status() const override {
    return state_.violation.ok() ? inner().status() : state_.violation;
  }
  void close() override {
    state_.closed = true;
    inner().close();
  }

 protected:
  std::unique_ptr<SendEnd> wrap_send(SendEnd& end, const ChannelKey& key,
                                     const ChannelShape& shape) override {
    return std::make_unique<CheckSend>(end, key, shape, state_);
  }
  std::unique_ptr<RecvEnd> wrap_recv(RecvEnd& end, const ChannelKey& key,
                                     const ChannelShape& shape) override {
    return std::make_unique<CheckRecv>(end, key, shape, state_);
  }

 private:
  mutable CheckState state_;
};

}  // namespace

void CheckLedger::sent(const ChannelKey& key, const MessageHeader& header, uint64_t hash) {
  const std::lock_guard lock(mutex_);
  channels_[key].messages.push_back({header, hash});
}

void CheckLedger::unsent(const ChannelKey& key) {
  const std::lock_guard lock(mutex_);
  channels_[key].messages.pop_back();
}

std::string CheckLedger::received(const ChannelKey& key, int32_t reader,
                                  const MessageHeader& header, uint64_t hash) {
  const std::lock_guard lock(mutex_);
  const auto found = channels_.find(key);
  if (found == channels_.end()) return {};
  Channel& channel = found->second;
  const uint64_t index = channel.next_of_reader[reader]++;
  if (index >= channel.messages.size()) {
    return fmt::format("message {} was delivered, {} were sent", index, channel.messages.size());
  }
  const Sent& was = channel.messages[index];
  if (was.header.fingerprint != header.fingerprint || was.header.bytes != header.bytes) {
    return fmt::format("message {} is {} B with fingerprint {:#x}, sent were {} B with {:#x}",
                       index, header.bytes, header.fingerprint, was.header.bytes,
                       was.header.fingerprint);
  }
  if (was.hash != hash) return fmt::format("message {} was changed on its way", index);
  return {};
}

std::unique_ptr<Transport> wrap_check(std::unique_ptr<Transport> inner, int32_t rank,
                                      std::shared_ptr<CheckLedger> ledger) {
  return std::make_unique<CheckTransport>(std::move(inner), rank, std::move(ledger));
}

}  // namespace unisono
