// uni-run: starts N ranks of a command on this machine, and ends them together.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "tools/uni_run/environment.h"
#include "tools/uni_run/guard.h"
#include "tools/uni_run/options.h"
#include "tools/uni_run/process.h"
#include "tools/uni_run/signals.h"
#include "tools/uni_run/supervisor.h"

namespace {

using namespace unisono;
using namespace unisono::uni_run;

constexpr int kOwnFailureStatus = 125;  // as timeout(1), env(1)

// Descriptors 0 to 2 must be taken, or our pipes would get these numbers.
void open_standard_descriptors() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd < 3);
  if (fd >= 0) (void)close(fd);
}

Result<int> run_job(const Options& options) {
  TRY_ASSIGN(const Job job, make_job(options));
  TRY_ASSIGN(Guard guard, Guard::start(job_marker(job)));
  TRY_ASSIGN(const TakenSignals signals, take_signals());
  // What ranks leave behind becomes our child.
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return system_error(errno, "prctl");
  LocalSpawner spawner(signals.before);
  return Supervisor(options, job, spawner, guard, signals.fd.get()).run();
}

}  // namespace

int main(int argc, char** argv) {
  const Parsed parsed = parse_options(argc, argv);
  if (!parsed.options) return parsed.exit_status;
  open_standard_descriptors();
  const Result<int> status = run_job(*parsed.options);
  if (status.ok()) return *status;
  fmt::print(stderr, "uni-run: {}\n", status.status().message());
  return kOwnFailureStatus;
}
