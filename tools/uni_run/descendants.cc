#include "tools/uni_run/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/net/socket.h"

namespace unisono::uni_run {
namespace {

constexpr int64_t kKillWithinNs = 5'000'000'000;
constexpr long kPauseNs = 10'000'000;

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  DIR* const folder = opendir("/proc");
  if (folder == nullptr) return pids;
  while (const dirent* entry = readdir(folder)) {
    const char* const end = entry->d_name + strlen(entry->d_name);
    pid_t pid = 0;
    if (std::from_chars(entry->d_name, end, pid).ptr == end) pids.push_back(pid);
  }
  (void)closedir(folder);
  return pids;
}

// Empty if the process is gone or not ours to see.
std::string read_proc(pid_t pid, const char* name) {
  const net::Fd fd(
      open(("/proc/" + std::to_string(pid) + name).c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  std::string text;
  char part[4096];
  for (ssize_t got; fd.valid() && (got = read(fd.get(), part, sizeof(part))) > 0;) {
    text.append(part, static_cast<size_t>(got));
  }
  return text;
}

pid_t parent_of(pid_t pid) {
  const std::string text = read_proc(pid, "/stat");
  const size_t name_end = text.rfind(')');  // a name may hold anything: "pid (name) state parent"
  if (name_end == std::string::npos || text.size() < name_end + 5) return -1;
  pid_t parent = -1;
  (void)std::from_chars(text.data() + name_end + 4, text.data() + text.size(), parent);
  return parent;
}

bool is_marked(pid_t pid, std::string_view marker) {
  const std::string text = read_proc(pid, "/environ");
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\0', at), text.size());
    if (std::string_view(text).substr(at, end - at) == marker) return true;
    at = end + 1;
  }
  return false;
}

void pause_briefly() {
  const timespec pause{0, kPauseNs};
  (void)nanosleep(&pause, nullptr);
}

}  // namespace

bool kill_descendants(pid_t except) {
  const int64_t give_up_ns = real_env().now_ns() + kKillWithinNs;
  for (;;) {
    bool found = false;
    for (const pid_t pid : all_processes()) {
      if (pid == except || parent_of(pid) != getpid()) continue;
      found = true;
      (void)kill(pid, SIGKILL);
      (void)waitpid(pid, nullptr, WNOHANG);  // its own children are ours from now on
    }
    if (!found) return true;
    if (real_env().now_ns() > give_up_ns) return false;
    pause_briefly();
  }
}

void kill_marked(std::string_view marker) {
  const int64_t give_up_ns = real_env().now_ns() + kKillWithinNs;
  for (bool found = true; found && real_env().now_ns() <= give_up_ns;) {
    found = false;
    for (const pid_t pid : all_processes()) {
      if (pid == getpid() || !is_marked(pid, marker)) continue;
      found = true;
      (void)kill(pid, SIGKILL);
    }
    if (found) pause_briefly();
  }
}

}  // namespace unisono::uni_run
