// A client of torch.distributed's TCPStore (PyTorch 2.1 and later), as torchrun's agent runs one.
//
// Protocol: one byte of query type, then its arguments; strings are {u64 length, bytes}, all in the
// machine's (little-endian) order; keys of the store begin with "/". A connection opens with
// VALIDATE and a magic number.
#pragma once

#include <string>

#include "base/net/socket.h"
#include "base/status.h"

namespace unisono::bootstrap {

class TorchStoreClient {
 public:
  // Blocks until a store answers at host:port or the deadline.
  static Result<TorchStoreClient> connect(const std::string& host, int port, int64_t deadline_ns);
  Status set(const std::string& key, const std::string& value, int64_t deadline_ns);
  // Waits for the key. kTimeout: it did not come; the connection is then of no more use.
  Result<std::string> get(const std::string& key, int64_t deadline_ns);
  // Adds to an integer key (0 when absent) and gives the sum.
  Result<int64_t> add(const std::string& key, int64_t amount, int64_t deadline_ns);

 private:
  explicit TorchStoreClient(net::Fd fd) : fd_(std::move(fd)) {}
  Status send_all(const std::string& bytes, int64_t deadline_ns);
  Result<std::string> receive(size_t count, int64_t deadline_ns);

  net::Fd fd_;
};

}  // namespace unisono::bootstrap
