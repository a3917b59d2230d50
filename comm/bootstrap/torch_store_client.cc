#include "comm/bootstrap/torch_store_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/bytes.h"
#include "base/env.h"
#include "comm/bootstrap/prober.h"

namespace unisono::bootstrap {
namespace {

enum Query : uint8_t { kValidate = 0, kSet = 1, kGet = 3, kAdd = 4, kCheck = 5, kWait = 6 };
constexpr uint32_t kValidation = 0x3C85F7CE;
constexpr char kStopWaiting = 0;
constexpr char kReady = 0, kNotReady = 1;
constexpr uint64_t kMaxValueBytes = 1u << 20;

void put_text(ByteWriter& writer, std::string_view text) {
  writer.put(static_cast<uint64_t>(text.size()));
  writer.put_bytes(text);
}
std::string stored(const std::string& key) {
  return "/" + key;
}

// The store says nothing by itself, so the opening also asks for a key that is not there: any
// answer shows a store.
class StoreOpening final : public Opening {
 public:
  std::string first_bytes() override {
    ByteWriter writer;
    writer.put(static_cast<uint8_t>(kValidate));
    writer.put(kValidation);
    writer.put(static_cast<uint8_t>(kCheck));
    writer.put<uint64_t>(1);
    put_text(writer, stored("unisono/are you there"));
    return writer.take();
  }
  size_t wanted() const override { return 1; }
  Status take(std::string_view bytes, std::string&) override {
    if (bytes[0] == kReady || bytes[0] == kNotReady) return ok_status();
    return Status(Code::kRemoteError, "it does not speak the protocol of a TCPStore");
  }
};

}  // namespace

Result<TorchStoreClient> TorchStoreClient::connect(const std::string& host, int port,
                                                   int64_t deadline_ns) {
  ProbeOptions options;
  TRY_ASSIGN(options.addresses, net::resolve_host(host, port));
  options.make_opening = [] { return std::make_unique<StoreOpening>(); };
  options.deadline_ns = deadline_ns;
  options.patience_ns = kNeverNs;
  options.what = "torchrun's agent store";
  TRY_ASSIGN(Won won, probe(options));
  return TorchStoreClient(std::move(won.fd));
}

Status TorchStoreClient::set(const std::string& key, const std::string& value,
                             int64_t deadline_ns) {
  ByteWriter writer;
  writer.put(static_cast<uint8_t>(kSet));
  put_text(writer, stored(key));
  put_text(writer, value);
  return send_all(writer.take(), deadline_ns);
}

Result<std::string> TorchStoreClient::get(const std::string& key, int64_t deadline_ns) {
  ByteWriter wait;
  wait.put(static_cast<uint8_t>(kWait));
  wait.put<uint64_t>(1);
  put_text(wait, stored(key));
  TRY(send_all(wait.take(), deadline_ns));
  TRY_ASSIGN(const std::string stopped, receive(1, deadline_ns));
  if (stopped[0] != kStopWaiting) {
    return error(Code::kRemoteError, "the store broke off the wait for '{}'", key);
  }
  ByteWriter get;
  get.put(static_cast<uint8_t>(kGet));
  put_text(get, stored(key));
  TRY(send_all(get.take(), deadline_ns));
  TRY_ASSIGN(const std::string length, receive(8, deadline_ns));
  const auto bytes = ByteReader(length).get<uint64_t>();
  if (bytes > kMaxValueBytes) {
    return error(Code::kRemoteError, "the store's value of '{}' has {} bytes", key, bytes);
  }
  return receive(bytes, deadline_ns);
}

Result<int64_t> TorchStoreClient::add(const std::string& key, int64_t amount, int64_t deadline_ns) {
  ByteWriter writer;
  writer.put(static_cast<uint8_t>(kAdd));
  put_text(writer, stored(key));
  writer.put(amount);
  TRY(send_all(writer.take(), deadline_ns));
  TRY_ASSIGN(const std::string sum, receive(8, deadline_ns));
  return ByteReader(sum).get<int64_t>();
}

Status TorchStoreClient::send_all(const std::string& bytes, int64_t deadline_ns) {
  size_t offset = 0;
  while (offset < bytes.size()) {
    const ssize_t sent =
        ::send(fd_.get(), bytes.data() + offset, bytes.size() - offset, MSG_NOSIGNAL);
    if (sent > 0) {
      offset += static_cast<size_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return system_error(errno, "send to the store");
    pollfd one{fd_.get(), POLLOUT, 0};
    if (::poll(&one, 1, poll_timeout_ms(deadline_ns)) <= 0 && real_env().now_ns() >= deadline_ns) {
      return Status(Code::kTimeout, "the store does not read");
    }
  }
  return ok_status();
}

Result<std::string> TorchStoreClient::receive(size_t count, int64_t deadline_ns) {
  std::string bytes;
  char buffer[4096];
  while (bytes.size() < count) {
    const ssize_t got = recv(fd_.get(), buffer, std::min(count - bytes.size(), sizeof(buffer)), 0);
    if (got > 0) {
      bytes.append(buffer, static_cast<size_t>(got));
      continue;
    }
    if (got == 0) return Status(Code::kRemoteError, "the store closed the connection");
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return system_error(errno, "recv from the store");
    pollfd one{fd_.get(), POLLIN, 0};
    if (::poll(&one, 1, poll_timeout_ms(deadline_ns)) <= 0 && real_env().now_ns() >= deadline_ns) {
      return Status(Code::kTimeout, "the store did not answer in time");
    }
  }
  return bytes;
}

}  // namespace unisono::bootstrap
