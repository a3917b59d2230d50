#include "comm/bootstrap/prober.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/env.h"

namespace unisono::bootstrap {
namespace {

constexpr int64_t kOneTryNs = 5'000'000'000;  // an address that does not answer is tried afresh
constexpr int64_t kFirstPauseNs = 10'000'000, kLongestPauseNs = 500'000'000;

struct Candidate {
  net::Address address;
  net::Fd fd;
  std::unique_ptr<Opening> opening;
  bool connected = false;
  std::string in, out;
  int64_t started_ns = 0, retry_ns = 0, pause_ns = kFirstPauseNs;
  int64_t refused_since_ns = 0;  // 0: its last try did not end in a refusal
  std::string answer = "no answer yet";
};

bool peer_is_same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

class Probing {
 public:
  explicit Probing(const ProbeOptions& options) : options_(options) {
    for (const net::Address& address : options.addresses) {
      Candidate candidate;
      candidate.address = address;
      candidates_.push_back(std::move(candidate));
    }
  }

  Result<Won> run() {
    if (candidates_.empty()) {
      return error(Code::kInvalidArgument, "{}: no address to try", options_.what);
    }
    for (;;) {
      const int64_t now_ns = real_env().now_ns();
      for (Candidate& candidate : candidates_) start(candidate, now_ns);
      if (given_up(now_ns)) {
        return error(Code::kRemoteError, "{}: nobody answers ({})", options_.what, answers());
      }
      if (now_ns >= options_.deadline_ns) {
        return error(Code::kTimeout, "{}: nobody answered in time ({})", options_.what, answers());
      }
      wait(now_ns);
      for (Candidate& candidate : candidates_) {
        if (!candidate.fd.valid()) continue;
        const Status status = advance(candidate);
        if (status.ok()) {
          return Won{std::move(candidate.fd), candidate.address, std::move(candidate.opening)};
        }
        if (status.code() == Code::kInvalidArgument) return status;
        if (status.code() != Code::kInProgress) refuse(candidate, status);
      }
    }
  }

 private:
  void start(Candidate& candidate, int64_t now_ns) {
    if (candidate.fd.valid()) {
      if (now_ns - candidate.started_ns < kOneTryNs) return;
      candidate.fd.reset();
      candidate.answer = candidate.connected ? "silence" : "no connection";
      candidate.refused_since_ns = 0;
    }
    if (now_ns < candidate.retry_ns) return;
    candidate.started_ns = now_ns;
    candidate.connected = false;
    candidate.in.clear();
    auto fd = net::start_connect(candidate.address);
    if (!fd.ok()) return refuse(candidate, fd.status());
    candidate.fd = std::move(*fd);
    candidate.opening = options_.make_opening();
    candidate.out = candidate.opening->first_bytes();
  }

  void refuse(Candidate& candidate, const Status& status) {
    candidate.fd.reset();
    candidate.answer = status.message();
    const int64_t now_ns = real_env().now_ns();
    if (candidate.refused_since_ns == 0) candidate.refused_since_ns = now_ns;
    candidate.retry_ns = now_ns + candidate.pause_ns;
    candidate.pause_ns = std::min(candidate.pause_ns * 2, kLongestPauseNs);
  }

  bool given_up(int64_t now_ns) const {
    if (options_.patience_ns == kNeverNs) return false;
    return std::all_of(candidates_.begin(), candidates_.end(), [&](const Candidate& candidate) {
      return candidate.refused_since_ns != 0 &&
             now_ns - candidate.refused_since_ns >= options_.patience_ns;
    });
  }

  void wait(int64_t now_ns) {
    int64_t wake_ns = options_.deadline_ns;
    std::vector<pollfd> polls;
    for (const Candidate& candidate : candidates_) {
      if (!candidate.fd.valid()) {
        wake_ns = std::min(wake_ns, candidate.retry_ns);
        continue;
      }
      wake_ns = std::min(wake_ns, candidate.started_ns + kOneTryNs);
      const bool writes = !candidate.connected || !candidate.out.empty();
      polls.push_back({candidate.fd.get(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
    }
    if (wake_ns > now_ns) (void)::poll(polls.data(), polls.size(), poll_timeout_ms(wake_ns));
  }

  // kInProgress: nothing is wrong, nothing is finished.
  Status advance(Candidate& candidate) {
    const int fd = candidate.fd.get();
    if (!candidate.connected) {
      pollfd one{fd, POLLOUT, 0};
      if (::poll(&one, 1, 0) == 0) return Status(Code::kInProgress, "connecting");
      int error_number = 0;
      socklen_t length = sizeof(error_number);
      (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error_number, &length);
      if (error_number != 0) return system_error(error_number, candidate.address.text());
      candidate.connected = true;
      const bool is_unix = candidate.address.storage.ss_family == AF_UNIX;
      if (!is_unix) net::tune_tcp(fd);
      if (is_unix && options_.same_user && !peer_is_same_user(fd)) {
        return error(Code::kRemoteError, "{} belongs to another user", candidate.address.text());
      }
    }
    for (;;) {
      TRY(write_out(candidate));
      std::array<char, 512> buffer;
      const size_t wanted = candidate.opening->wanted() - candidate.in.size();
      const ssize_t got = recv(fd, buffer.data(), std::min(wanted, buffer.size()), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return Status(Code::kInProgress, "waiting");
      if (got < 0) return system_error(errno, candidate.address.text());
      if (got == 0) {
        return error(Code::kRemoteError, "{} does not know it", candidate.address.text());
      }
      candidate.in.append(buffer.data(), static_cast<size_t>(got));
      if (candidate.in.size() < candidate.opening->wanted()) continue;
      const std::string message = std::move(candidate.in);
      candidate.in.clear();
      const Status status = candidate.opening->take(message, candidate.out);
      if (status.code() != Code::kInProgress) return status;
    }
  }

  static Status write_out(Candidate& candidate) {
    while (!candidate.out.empty()) {
      const ssize_t sent =
          ::send(candidate.fd.get(), candidate.out.data(), candidate.out.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) return Status(Code::kInProgress, "writing");
      if (sent < 0) return system_error(errno, candidate.address.text());
      candidate.out.erase(0, static_cast<size_t>(sent));
    }
    return ok_status();
  }

  std::string answers() const {
    std::string text;
    for (const Candidate& candidate : candidates_) {
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", candidate.address.text(),
                          candidate.answer);
    }
    return text;
  }

  const ProbeOptions& options_;
  std::vector<Candidate> candidates_;
};

}  // namespace

int poll_timeout_ms(int64_t deadline_ns) {
  const int64_t left_ns = deadline_ns - real_env().now_ns();
  if (left_ns <= 0) return 0;
  return static_cast<int>(std::min<int64_t>(left_ns / 1'000'000 + 1, 60'000));
}

Result<Won> probe(const ProbeOptions& options) {
  return Probing(options).run();
}

}  // namespace unisono::bootstrap
