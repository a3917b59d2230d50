#include "tools/uni_run/agent.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "tools/uni_run/ssh.h"

namespace unisono::uni_run {

std::optional<std::string> Orders::wait_for_line() {
  for (;;) {
    if (auto line = next_line()) return line;
    if (!read_some()) return std::nullopt;
  }
}

bool Orders::read_some() {
  std::array<char, 4096> bytes;
  const ssize_t got = read(fd(), bytes.data(), bytes.size());
  if (got > 0) text_.append(bytes.data(), static_cast<size_t>(got));
  return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

std::optional<std::string> Orders::next_line() {
  const size_t end = text_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = text_.substr(0, end);
  text_.erase(0, end + 1);
  return line;
}

Result<std::optional<Job>> await_start(Orders* orders) {
  // Both stay ours until the job ends, so that nobody takes them before a rank listens there.
  TRY_ASSIGN(ReservedPort meeting, reserve_port());
  TRY_ASSIGN(ReservedPort master, reserve_port());
  const std::string hello = fmt::format("{}{} {}\n", kHello, meeting.port, master.port);
  if (write(STDOUT_FILENO, hello.data(), hello.size()) != static_cast<ssize_t>(hello.size())) {
    return system_error(errno, "write to uni-run");
  }
  const auto line = orders->wait_for_line();
  if (!line) return std::optional<Job>();
  const auto order = decode_start(*line);
  if (!order.ok()) return std::optional<Job>();  // the end, or a signal
  Job job;
  job.id = order->id;
  const bool is_v6 = order->address.find(':') != std::string::npos;
  job.meeting = fmt::format("tcp://{}:{}", is_v6 ? "[" + order->address + "]" : order->address,
                            order->meeting_port);
  TRY_ASSIGN(job.secret, secret_file(order->secret));
  job.master_host = order->master_host;
  job.master_port = order->master_port;
  job.reserved_ports.push_back(std::move(meeting.fd));
  job.reserved_ports.push_back(std::move(master.fd));
  return std::optional<Job>(std::move(job));
}

}  // namespace unisono::uni_run
