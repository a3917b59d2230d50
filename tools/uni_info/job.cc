#include "tools/uni_info/job.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "tools/uni_info/pairs.h"
#include "unisono/unisono.h"

namespace unisono::uni_info {
namespace {

constexpr int64_t kMeetMs = 60'000;  // ranks of this machine; nobody waits longer for an answer

struct Pipe {
  int read_end = -1, write_end = -1;
  bool open() {
    int ends[2];
    if (pipe(ends) != 0) return false;
    read_end = ends[0];
    write_end = ends[1];
    return true;
  }
  void close_read() { close(&read_end); }
  void close_write() { close(&write_end); }
  ~Pipe() {
    close_read();
    close_write();
  }

 private:
  static void close(int* fd) {
    if (*fd >= 0) (void)::close(*fd);
    *fd = -1;
  }
};

Json problem(const char* what, uniComm_t comm) {
  return {{"problem", fmt::format("{}: {}", what, uniGetLastError(comm))}};
}

Json ask_and_leave(uniComm_t comm) {
  const Json answer = describe_pairs(comm);
  if (uniCommDestroy(comm) != uniSuccess) return problem("uniCommDestroy", nullptr);
  return answer;
}

// One id a rank: 128 bytes are written and read whole. Rank 0 says what went wrong.
bool share_id(Pipe* ids, int rank, int ranks, uniUniqueId* id) {
  if (rank != 0) {
    ids->close_write();  // so that the end is read when rank 0 dies before it has an id
    return read(ids->read_end, id, sizeof(*id)) == static_cast<ssize_t>(sizeof(*id));
  }
  if (uniGetUniqueId(id) != uniSuccess) return false;
  for (int other = 1; other < ranks; ++other) {
    if (write(ids->write_end, id, sizeof(*id)) != static_cast<ssize_t>(sizeof(*id))) return false;
  }
  return true;
}

Json run_rank(Pipe* ids, int rank, int ranks) {
  uniUniqueId id;
  if (!share_id(ids, rank, ranks, &id)) return problem("uniGetUniqueId", nullptr);
  uniConfig_t config = UNI_CONFIG_INITIALIZER;
  config.timeout_ms = kMeetMs;
  config.name = "uni-info";
  uniComm_t comm = nullptr;
  if (uniCommInitRankConfig(&comm, ranks, id, rank, &config) != uniSuccess) {
    return problem("uniCommInitRankConfig", nullptr);
  }
  return ask_and_leave(comm);
}

// Rank 0's answer, and the first problem of any, go to the parent, each as one line.
[[noreturn]] void be_rank(Pipe* ids, Pipe* answers, pid_t parent, int rank, int ranks) {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before prctl
  answers->close_read();
  const Json answer = run_rank(ids, rank, ranks);
  const bool failed = answer.is_object() && answer.contains("problem");
  if (rank != 0) _exit(failed ? 1 : 0);
  const std::string text = answer.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(answers->write_end, text.data() + done, text.size() - done);
    if (wrote < 0) _exit(1);
    done += static_cast<size_t>(wrote);
  }
  _exit(failed ? 1 : 0);
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> bytes;
  for (ssize_t got; (got = read(fd, bytes.data(), bytes.size())) > 0;) {
    text.append(bytes.data(), static_cast<size_t>(got));
  }
  return text;
}

}  // namespace

Json ask_local_job(int ranks) {
  Pipe ids, answers;
  if (!ids.open() || !answers.open()) return {{"problem", std::strerror(errno)}};
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) be_rank(&ids, &answers, parent, rank, ranks);
    if (pid < 0) {
      for (const pid_t child : children) (void)kill(child, SIGKILL);
      for (const pid_t child : children) (void)waitpid(child, nullptr, 0);
      return {{"problem", fmt::format("fork: {}", std::strerror(errno))}};
    }
    children.push_back(pid);
  }
  ids.close_read();  // so that a rank whose rank 0 died reads the end
  ids.close_write();
  answers.close_write();
  const std::string text = read_all(answers.read_end);
  for (const pid_t child : children) (void)waitpid(child, nullptr, 0);
  Json answer = Json::parse(text, nullptr, false);
  if (answer.is_discarded()) return {{"problem", "rank 0 ended without an answer"}};
  return answer;
}

Json ask_launched_job() {
  uniConfig_t config = UNI_CONFIG_INITIALIZER;
  config.name = "uni-info";
  uniComm_t comm = nullptr;
  if (uniCommInitUrl(&comm, "env://", -1, -1, &config) != uniSuccess) {
    return problem("uniCommInitUrl", nullptr);
  }
  return ask_and_leave(comm);
}

}  // namespace unisono::uni_info
