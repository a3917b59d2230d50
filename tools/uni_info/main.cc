// uni-info: what the library finds on this machine and in this environment, and what the ranks of a
// job choose between them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/uni_info/gather.h"
#include "tools/uni_info/job.h"
#include "tools/uni_info/text.h"

namespace unisono::uni_info {
namespace {

int say(const Json& all, bool json) {
  const std::string text =
      json ? all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : to_text(all);
  const bool said =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!said) fmt::print(stderr, "uni-info: standard output: {}\n", std::strerror(errno));
  const bool met = !all.contains("job") || !all["job"].contains("problem");
  return said && met ? 0 : 1;
}

}  // namespace
}  // namespace unisono::uni_info

int main(int argc, char** argv) {
  using unisono::uni_info::Json;
  CLI::App app{
      "What Unisono finds on this machine and in this environment. Exit status 1: a job was asked "
      "for and its ranks did not meet, or the output could not be written; 2: wrong arguments.",
      "uni-info"};
  bool json = false, launched = false;
  int ranks = 0;
  app.add_flag("--json", json, "as JSON");
  auto* const local = app.add_option("--ranks", ranks,
                                     "start this many local ranks and show what they choose "
                                     "between each pair, and why");
  local->check(CLI::Range(1, 256));
  app.add_flag("--job", launched,
               "the same for the job that this process is a rank of (under uni-run, mpirun, "
               "torchrun ...); rank 0 speaks")
      ->excludes(local);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? 0 : 2;
  }
  Json job;
  if (ranks > 0) job = unisono::uni_info::ask_local_job(ranks);  // it forks: before all else
  if (launched) job = unisono::uni_info::ask_launched_job();
  if (launched && job.is_null()) return 0;  // not rank 0
  Json all = unisono::uni_info::gather();
  if (!job.is_null()) all["job"] = std::move(job);
  return unisono::uni_info::say(all, json);
}
