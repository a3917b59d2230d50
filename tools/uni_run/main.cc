// uni-run: starts N ranks of a command on this machine or on several, and ends them together.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "tools/uni_run/agent.h"
#include "tools/uni_run/crew.h"
#include "tools/uni_run/environment.h"
#include "tools/uni_run/guard.h"
#include "tools/uni_run/options.h"
#include "tools/uni_run/process.h"
#include "tools/uni_run/signals.h"
#include "tools/uni_run/ssh.h"
#include "tools/uni_run/supervisor.h"

namespace {

using namespace unisono;
using namespace unisono::uni_run;

constexpr int kOwnFailureStatus = 125;  // as timeout(1), env(1)
constexpr int kEndedStatus = 143;       // as of a process that SIGTERM has ended

// Descriptors 0 to 2 must be taken, or our pipes would get these numbers.
void open_standard_descriptors() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd < 3);
  if (fd >= 0) (void)close(fd);
}

Result<int> supervise(const Options& options, Crew& crew, bool over_ssh, const std::string& marker,
                      Orders* orders) {
  TRY_ASSIGN(Guard guard, Guard::start(marker));
  TRY_ASSIGN(const TakenSignals signals, take_signals());
  // What ranks leave behind becomes our child.
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return system_error(errno, "prctl");
  LocalSpawner local(signals.before);
  SshSpawner remote(local);
  Spawner& spawner = over_ssh ? static_cast<Spawner&>(remote) : local;
  return Supervisor(options, crew, spawner, guard, signals.fd.get(), orders).run();
}

Result<int> run_here(const Options& options) {
  TRY_ASSIGN(const Job job, make_job(options));
  // Ranks have process groups of their own, which a terminal does not let read: we read for it.
  LocalCrew crew(options, job, isatty(STDIN_FILENO) == 1 ? Input::kPiped : Input::kInherited);
  return supervise(options, crew, false, job_marker(job), nullptr);
}

Result<int> run_on_hosts(const Options& options) {
  HostCrew crew(options, options.hosts);
  // Nobody has this: the ssh are found by their groups, and the agents' ranks by their own guards.
  return supervise(options, crew, true, "UNISONO_MEETING=none " + random_hex(8), nullptr);
}

Result<int> run_as_agent(const Options& options) {
  Orders orders;
  TRY_ASSIGN(const std::optional<Job> job, await_start(&orders));
  if (!job) return kEndedStatus;
  LocalCrew crew(options, *job, Input::kNull);
  return supervise(options, crew, false, job_marker(*job), &orders);
}

}  // namespace

int main(int argc, char** argv) {
  const Parsed parsed = parse_options(argc, argv);
  if (!parsed.options) return parsed.exit_status;
  open_standard_descriptors();
  const Options& options = *parsed.options;
  const Result<int> status = options.part.is_agent   ? run_as_agent(options)
                             : options.hosts.empty() ? run_here(options)
                                                     : run_on_hosts(options);
  if (status.ok()) return *status;
  fmt::print(stderr, "uni-run: {}\n", status.status().message());
  return kOwnFailureStatus;
}
