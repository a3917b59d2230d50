#include "comm/bootstrap/pmi1_client.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/env.h"
#include "comm/bootstrap/prober.h"

namespace unisono::bootstrap {
namespace {

constexpr size_t kMaxLineBytes = 64u << 10;
constexpr int64_t kFinishNs = 2'000'000'000;

// The value of `name` in "cmd=... name=value ..."; empty if absent.
std::string_view field(std::string_view line, std::string_view name) {
  while (!line.empty()) {
    const size_t blank = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, blank);
    const size_t equals = word.find('=');
    if (equals != std::string_view::npos && word.substr(0, equals) == name) {
      return word.substr(equals + 1);
    }
    line.remove_prefix(std::min(blank + 1, line.size()));
  }
  return {};
}

size_t number_of(std::string_view text) {
  size_t number = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

Result<Pmi1Client> Pmi1Client::start(int fd, int64_t deadline_ns) {
  Pmi1Client client(fd);
  TRY_ASSIGN(const std::string version, client.ask("cmd=init pmi_version=1 pmi_subversion=1",
                                                   "response_to_init", deadline_ns));
  TRY_ASSIGN(const std::string limits, client.ask("cmd=get_maxes", "maxes", deadline_ns));
  client.most_key_bytes_ = number_of(field(limits, "keylen_max"));
  client.most_value_bytes_ = number_of(field(limits, "vallen_max"));
  TRY_ASSIGN(const std::string space, client.ask("cmd=get_my_kvsname", "my_kvsname", deadline_ns));
  client.space_ = field(space, "kvsname");
  return client;
}

Status Pmi1Client::put(const std::string& key, const std::string& value, int64_t deadline_ns) {
  if (key.size() >= most_key_bytes_ || value.size() >= most_value_bytes_) {
    return error(Code::kRemoteError, "PMI: the process manager takes keys of {} and values of {} B",
                 most_key_bytes_, most_value_bytes_);
  }
  auto answer = ask(fmt::format("cmd=put kvsname={} key={} value={}", space_, key, value),
                    "put_result", deadline_ns);
  return answer.ok() ? ok_status() : answer.status();
}

Status Pmi1Client::barrier(int64_t deadline_ns) {
  auto answer = ask("cmd=barrier_in", "barrier_out", deadline_ns);
  return answer.ok() ? ok_status() : answer.status();
}

Result<std::string> Pmi1Client::get(const std::string& key, int64_t deadline_ns) {
  TRY_ASSIGN(const std::string answer,
             ask(fmt::format("cmd=get kvsname={} key={}", space_, key), "get_result", deadline_ns));
  return std::string(field(answer, "value"));
}

void Pmi1Client::finish() {
  (void)ask("cmd=finalize", "finalize_ack", real_env().now_ns() + kFinishNs);
}

Result<std::string> Pmi1Client::ask(const std::string& question, const char* expected,
                                    int64_t deadline_ns) {
  const std::string line = question + "\n";
  for (size_t offset = 0; offset < line.size();) {
    const ssize_t put = ::write(fd_, line.data() + offset, line.size() - offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error(errno, "PMI: write to the process manager (PMI_FD)");
    offset += static_cast<size_t>(put);
  }
  TRY_ASSIGN(const std::string answer, read_line(deadline_ns));
  const std::string_view rc = field(answer, "rc");
  if (field(answer, "cmd") != expected || (!rc.empty() && rc != "0")) {
    return error(Code::kRemoteError, "PMI: the process manager answered '{}' to '{}'", answer,
                 question.substr(0, question.find(' ')));
  }
  return answer;
}

Result<std::string> Pmi1Client::read_line(int64_t deadline_ns) {
  for (;;) {
    const size_t end = input_.find('\n');
    if (end != std::string::npos) {
      std::string line = input_.substr(0, end);
      input_.erase(0, end + 1);
      return line;
    }
    if (input_.size() > kMaxLineBytes) {
      return Status(Code::kRemoteError, "PMI: a line of the process manager has no end");
    }
    pollfd one{fd_, POLLIN, 0};
    if (::poll(&one, 1, poll_timeout_ms(deadline_ns)) <= 0) {
      if (real_env().now_ns() < deadline_ns) continue;
      return Status(Code::kTimeout, "PMI: not all ranks have come (or MPI uses PMI_FD itself)");
    }
    char buffer[4096];
    const ssize_t got = ::read(fd_, buffer, sizeof(buffer));
    if (got > 0) {
      input_.append(buffer, static_cast<size_t>(got));
    } else if (got == 0) {
      return Status(Code::kRemoteError, "PMI: the process manager closed PMI_FD");
    } else if (errno != EINTR && errno != EAGAIN) {
      return system_error(errno, "PMI: read of PMI_FD");
    }
  }
}

}  // namespace unisono::bootstrap
