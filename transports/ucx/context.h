// The process's UCX contexts (what UCX found of devices), one for each set of options, and a worker
// of one: what a transport owns.
#pragma once

#include <string>

#include "transports/ucx/library.h"

namespace unisono::ucx {

struct Options {
  std::string tls;      // UCX_TLS of this context; empty: UCX's own choice
  std::string devices;  // UCX_NET_DEVICES
};
// "tls=rc+ud,devices=mlx5_0:1": '+' stands for the commas of UCX.
Result<Options> parse_options(const std::string& text);

// Lives until the process ends: UCX looks for devices once, not for each communicator. Any thread.
// An error in a child forked by a process that had one: UCX's threads do not survive fork().
Result<ucp_context_h> shared_context(const Options& options);

// A worker and its address. One thread at a time.
class Worker {
 public:
  static Result<Worker> create(ucp_context_h context);
  Worker(Worker&& other) noexcept;
  Worker& operator=(Worker&&) = delete;
  ~Worker() { destroy(); }  // its endpoints are closed by then
  void destroy();

  ucp_worker_h get() const { return worker_; }
  const std::string& address() const { return address_; }
  int efd() const { return efd_; }  // readable after arm() once there is something to do

 private:
  Worker(ucp_worker_h worker, std::string address, int efd)
      : worker_(worker), address_(std::move(address)), efd_(efd) {}

  ucp_worker_h worker_ = nullptr;
  std::string address_;
  int efd_ = -1;
};

// InfiniBand and RoCE devices of this machine with a port that is up: "mlx5_0 mlx5_1".
std::string rdma_devices();

}  // namespace unisono::ucx
