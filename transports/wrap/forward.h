// A transport that forwards every call to another one: what the decorators of this folder derive
// from.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "transports/transport.h"

namespace unisono::wrap {

class ForwardSend : public SendEnd {
 public:
  explicit ForwardSend(SendEnd& inner) : inner_(inner) {}
  SendOutcome send(const MessageHeader& header, const void* data) override {
    return inner_.send(header, data);
  }
  std::byte* reserve() override { return inner_.reserve(); }
  void commit(const MessageHeader& header) override { inner_.commit(header); }
  bool streams(uint32_t bytes) override { return inner_.streams(bytes); }
  SendOutcome send_reference(const MessageHeader& header, const void* data,
                             uint64_t registration) override {
    return inner_.send_reference(header, data, registration);
  }
  void prepare_next(uint32_t bytes) override { inner_.prepare_next(bytes); }
  uint64_t accepted() const override { return inner_.accepted(); }
  uint64_t completed() const override { return inner_.completed(); }

 protected:
  SendEnd& inner_;
};

class ForwardRecv : public RecvEnd {
 public:
  explicit ForwardRecv(RecvEnd& inner) : inner_(inner) {}
  bool lend(Message* message) override { return inner_.lend(message); }
  void release() override { inner_.release(); }
  void post(void* buffer, uint32_t bytes) override { inner_.post(buffer, bytes); }
  void cancel_post() override { inner_.cancel_post(); }

 protected:
  RecvEnd& inner_;
};

class ForwardTransport : public Transport {
 public:
  explicit ForwardTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  const TransportCaps& caps() const override { return inner_->caps(); }
  std::string address() const override { return inner_->address(); }
  Status connect(std::span<const std::string> addresses) override {
    return inner_->connect(addresses);
  }
  bool reaches(int32_t peer) const override { return inner_->reaches(peer); }
  bool ready() const override { return inner_->ready(); }
  bool flushed() const override { return inner_->flushed(); }
  Result<SendEnd*> open_send(const ChannelKey& key, const ChannelShape& shape) override {
    TRY_ASSIGN(SendEnd * end, inner_->open_send(key, shape));
    auto& wrapped = senders_[key];
    if (wrapped == nullptr) wrapped = wrap_send(*end, key, shape);
    return wrapped.get();
  }
  Result<RecvEnd*> open_recv(const ChannelKey& key, const ChannelShape& shape) override {
    TRY_ASSIGN(RecvEnd * end, inner_->open_recv(key, shape));
    auto& wrapped = receivers_[key];
    if (wrapped == nullptr) wrapped = wrap_recv(*end, key, shape);
    return wrapped.get();
  }
  Result<uint64_t> register_memory(const Region& region) override {
    return inner_->register_memory(region);
  }
  void deregister_memory(uint64_t registration) override {
    inner_->deregister_memory(registration);
  }
  bool progress() override { return inner_->progress(); }
  bool arm() override { return inner_->arm(); }
  void disarm() override { inner_->disarm(); }
  Status status() const override { return inner_->status(); }
  bool peer_left(int32_t peer) const override { return inner_->peer_left(peer); }
  bool linked(int32_t peer) const override { return inner_->linked(peer); }
  size_t memory_bytes() const override { return inner_->memory_bytes(); }
  void close() override { inner_->close(); }

 protected:
  // Called once a key, after the inner transport has opened its own end.
  virtual std::unique_ptr<SendEnd> wrap_send(SendEnd& end, const ChannelKey& key,
                                             const ChannelShape& shape) = 0;
  virtual std::unique_ptr<RecvEnd> wrap_recv(RecvEnd& end, const ChannelKey& key,
                                             const ChannelShape& shape) = 0;
  Transport& inner() const { return *inner_; }

 private:
  std::unique_ptr<Transport> inner_;
  std::map<ChannelKey, std::unique_ptr<SendEnd>> senders_;
  std::map<ChannelKey, std::unique_ptr<RecvEnd>> receivers_;
};

}  // namespace unisono::wrap
