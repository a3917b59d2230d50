#include "tools/uni_run/ending.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <csignal>
#include <map>

#include "tools/uni_run/signals.h"

namespace unisono::uni_run {
namespace {

std::string describe(int wait_status, bool several) {
  if (WIFSIGNALED(wait_status)) {
    return fmt::format("{} killed by {}{}", several ? "were" : "was",
                       signal_name(WTERMSIG(wait_status)),
                       WCOREDUMP(wait_status) ? " (core dumped)" : "");
  }
  return fmt::format("exited with status {}", WEXITSTATUS(wait_status));
}

}  // namespace

bool is_failure(int wait_status) {
  return wait_status != 0;
}

int exit_status_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

bool is_violent(int wait_status) {
  switch (exit_status_of(wait_status) - 128) {
    case SIGKILL:
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
      return true;
    default:
      return false;
  }
}

std::string describe_status(int wait_status) {
  return describe(wait_status, false);
}

std::string list_numbers(const std::vector<int>& ascending) {
  std::string text;
  for (size_t first = 0; first < ascending.size();) {
    size_t last = first;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(ascending[first]);
    if (last > first) {
      text += (last == first + 1 ? ", " : "-") + std::to_string(ascending[last]);
    }
    first = last + 1;
  }
  return text;
}

std::string summarize(const std::vector<Ended>& ended) {
  std::map<int, std::vector<int>> ranks_by_status;
  for (const Ended& one : ended) ranks_by_status[one.wait_status].push_back(one.rank);
  std::string text;
  for (const auto& [status, ranks] : ranks_by_status) {
    const bool several = ranks.size() > 1;
    text += fmt::format("{}{} {} {}", text.empty() ? "" : "; ", several ? "ranks" : "rank",
                        list_numbers(ranks), describe(status, several));
  }
  return text;
}

}  // namespace unisono::uni_run
