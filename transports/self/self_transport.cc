#include "transports/self/self_transport.h"

#include <cstring>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include "base/check.h"

namespace unisono {
namespace {

// Both ends of one channel, a ring of slots. One thread drives both, so nothing here is atomic, and
// a reference needs no registration that anyone else could see.
class SelfChannel final : public SendEnd, public RecvEnd {
 public:
  explicit SelfChannel(const ChannelShape& shape) : shape_(shape), slots_(shape.slots) {}

  SendOutcome send(const MessageHeader& header, const void* data) override {
    CHECK(header.bytes <= shape_.slice_bytes);
    std::byte* slot = reserve();
    if (slot == nullptr) return SendOutcome::kAgain;
    if (header.bytes > 0) std::memcpy(slot, data, header.bytes);
    commit(header);
    return SendOutcome::kDone;
  }
  std::byte* reserve() override {
    if (sent_ - released_ == shape_.slots) return nullptr;
    Slot& slot = slots_[sent_ % shape_.slots];
    if (slot.memory == nullptr) {
      slot.memory.reset(static_cast<std::byte*>(
          ::operator new[](shape_.slice_bytes, std::align_val_t{kAlignment})));
    }
    return slot.memory.get();
  }
  void commit(const MessageHeader& header) override {
    CHECK(header.bytes <= shape_.slice_bytes && sent_ - released_ < shape_.slots);
    Slot& slot = slots_[sent_ % shape_.slots];
    slot.header = header;
    slot.data = slot.memory.get();
    ++sent_;
    news_ = true;
  }
  SendOutcome send_reference(const MessageHeader& header, const void* data, uint64_t) override {
    CHECK(header.bytes <= shape_.slice_bytes);
    if (sent_ - released_ == shape_.slots) return SendOutcome::kAgain;
    slots_[sent_ % shape_.slots].header = header;
    slots_[sent_ % shape_.slots].data = static_cast<const std::byte*>(data);
    last_reference_ = ++sent_;
    news_ = true;
    return SendOutcome::kPosted;
  }
  uint64_t accepted() const override { return sent_; }
  uint64_t completed() const override {
    const uint64_t now = released_ < last_reference_ ? released_ : sent_;
    return completed_ = now > completed_ ? now : completed_;
  }

  bool lend(Message* message) override {
    if (released_ == sent_) return false;
    const Slot& slot = slots_[released_ % shape_.slots];
    message->header = slot.header;
    message->data = slot.data;
    return true;
  }
  void release() override {
    CHECK(released_ < sent_);
    ++released_;
    news_ = true;
  }

  const ChannelShape& shape() const { return shape_; }
  bool take_news() { return std::exchange(news_, false); }
  size_t memory_bytes() const {
    size_t bytes = 0;
    for (const Slot& slot : slots_) bytes += slot.memory == nullptr ? 0 : shape_.slice_bytes;
    return bytes;
  }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(std::byte* memory) const {
      ::operator delete[](memory, std::align_val_t{kAlignment});
    }
  };
  struct Slot {
    MessageHeader header;
    const std::byte* data = nullptr;
    std::unique_ptr<std::byte, Free> memory;  // taken when first needed
  };
  const ChannelShape shape_;
  std::vector<Slot> slots_;
  uint64_t sent_ = 0, released_ = 0, last_reference_ = 0;
  mutable uint64_t completed_ = 0;
  bool news_ = false;
};

class SelfTransport final : public Transport {
 public:
  explicit SelfTransport(int32_t rank) : rank_(rank) {
    caps_.name = "self";
    caps_.by_reference = true;
    caps_.prefers_reserve = true;
    caps_.same_memory = true;
    caps_.latency_us = 0.02;
    caps_.gigabytes_per_s = 40;
  }
  const TransportCaps& caps() const override { return caps_; }
  std::string address() const override { return "self"; }
  Status connect(std::span<const std::string>) override { return ok_status(); }
  bool reaches(int32_t) const override {
    return false;
  }  // no peer; the rank itself needs no asking
  bool ready() const override { return true; }
  Result<SendEnd*> open_send(const ChannelKey& key, const ChannelShape& shape) override {
    TRY_ASSIGN(SelfChannel * channel, open(key, shape));
    return static_cast<SendEnd*>(channel);
  }
  Result<RecvEnd*> open_recv(const ChannelKey& key, const ChannelShape& shape) override {
    TRY_ASSIGN(SelfChannel * channel, open(key, shape));
    return static_cast<RecvEnd*>(channel);
  }
  Result<uint64_t> register_memory(const Region&) override { return ++last_registration_; }
  void deregister_memory(uint64_t) override {}
  bool progress() override { return false; }
  // The driving thread is the only one that could make progress here, so this only tells what it
  // has not looked at yet.
  bool arm() override {
    bool news = false;
    for (const auto& [key, channel] : channels_) news |= channel->take_news();
    return news;
  }
  void disarm() override {}
  Status status() const override { return ok_status(); }
  bool peer_left(int32_t) const override { return false; }
  size_t memory_bytes() const override {
    size_t bytes = 0;
    for (const auto& [key, channel] : channels_) bytes += channel->memory_bytes();
    return bytes;
  }
  void close() override { channels_.clear(); }

 private:
  Result<SelfChannel*> open(const ChannelKey& key, const ChannelShape& shape) {
    if (key.writer != rank_ || key.reader != rank_) {
      return error(Code::kInvalidUsage, "self: rank {} to rank {} is not within rank {}",
                   key.writer, key.reader, rank_);
    }
    if (key.number > kMaxChannelNumber || shape.slots < 2 || shape.slots > 4096 ||
        shape.slice_bytes < 1 || shape.slice_bytes > kMaxSliceBytes) {
      return error(Code::kInvalidArgument, "self channel {}: {} slots of {} bytes are not possible",
                   key.number, shape.slots, shape.slice_bytes);
    }
    auto& channel = channels_[key];
    if (channel == nullptr) channel = std::make_unique<SelfChannel>(shape);
    if (channel->shape().slots != shape.slots ||
        channel->shape().slice_bytes != shape.slice_bytes) {
      return error(Code::kInvalidUsage, "self channel {} is already open with another shape",
                   key.number);
    }
    return channel.get();
  }
  const int32_t rank_;
  TransportCaps caps_;
  uint64_t last_registration_ = 0;
  std::map<ChannelKey, std::unique_ptr<SelfChannel>> channels_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_self_transport(const TransportContext& context) {
  return std::unique_ptr<Transport>(std::make_unique<SelfTransport>(context.rank));
}

}  // namespace unisono
