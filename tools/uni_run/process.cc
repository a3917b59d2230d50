#include "tools/uni_run/process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "tools/uni_run/binding.h"

namespace unisono::uni_run {
namespace {

struct Pipe {
  net::Fd reader, writer;
};
Result<Pipe> make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return system_error(errno, "pipe");
  return Pipe{net::Fd(fds[0]), net::Fd(fds[1])};
}

Status set_nonblocking(const net::Fd& fd) {
  if (fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) return system_error(errno, "fcntl O_NONBLOCK");
  return ok_status();
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// All that the child needs, made before fork().
struct Child {
  std::vector<char*> command, environment;
  std::vector<unsigned long> mask;
  int input = -1, output = -1, error = -1;  // -1: leave ours
  int inherited = -1;
  int complaint = -1;  // pipe: errno of what failed; closed by a successful exec
  pid_t parent = -1;
  const SignalState* signals = nullptr;
};

// Child only. 0, or the errno of what failed.
int set_up_child(const Child& child) {
  // With us dies every rank, even if we are killed: and if that was already, at once.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  if (getppid() != child.parent) _exit(1);
  if (setpgid(0, 0) != 0) return errno;
  const int ends[] = {child.input, child.output, child.error};
  for (int target = 0; target < 3; ++target) {
    if (ends[target] >= 0 && dup2(ends[target], target) < 0) return errno;
  }
  if (child.inherited >= 0 && fcntl(child.inherited, F_SETFD, 0) != 0) return errno;
  if (!child.mask.empty()) {
    const auto* const set = reinterpret_cast<const cpu_set_t*>(child.mask.data());
    if (sched_setaffinity(0, child.mask.size() * sizeof(child.mask[0]), set) != 0) return errno;
  }
  if (!child.signals->pipe_ignored) (void)std::signal(SIGPIPE, SIG_DFL);
  return sigprocmask(SIG_SETMASK, &child.signals->mask, nullptr) == 0 ? 0 : errno;
}

[[noreturn]] void run_child(const Child& child) {
  int failure = set_up_child(child);
  if (failure == 0) {
    environ = const_cast<char**>(child.environment.data());  // PATH too may be the rank's own
    (void)execvp(child.command[0], child.command.data());
    failure = errno;
  }
  (void)!write(child.complaint, &failure, sizeof(failure));
  _exit(127);
}

// Waits until the child has become its command.
Status wait_for_exec(const net::Fd& complaint, const std::string& command) {
  int failure = 0;
  ssize_t got;
  do {
    got = read(complaint.get(), &failure, sizeof(failure));
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return ok_status();
  const Code code = failure == ENOENT ? Code::kInvalidArgument : Code::kSystemError;
  if (failure == ENOENT && command.find('/') == std::string::npos) {
    return error(code, "{}: command not found", command);
  }
  return error(code, "{}", system_error(failure, command).message());
}

}  // namespace

Result<Spawned> LocalSpawner::spawn(const RankSpec& spec) {
  Pipe input, output, errors;
  Spawned spawned;
  Child child;
  child.command = pointers(spec.command);
  child.environment = pointers(spec.environment);
  child.mask = core_mask(spec.cores);
  child.inherited = spec.inherited_fd;
  child.parent = getpid();
  child.signals = &signals_;
  if (spec.input == Input::kPiped) {
    TRY_ASSIGN(input, make_pipe());
    TRY(set_nonblocking(input.writer));
  } else if (spec.input == Input::kNull) {
    input.reader = net::Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!input.reader.valid()) return system_error(errno, "/dev/null");
  }
  if (spec.piped_output) {
    TRY_ASSIGN(output, make_pipe());
    TRY_ASSIGN(errors, make_pipe());
    TRY(set_nonblocking(output.reader));
    TRY(set_nonblocking(errors.reader));
  }
  child.input = input.reader.get();
  child.output = output.writer.get();
  child.error = errors.writer.get();
  TRY_ASSIGN(Pipe complaint, make_pipe());
  child.complaint = complaint.writer.get();
  // Without the handlers of fork(), by which the library closes its descriptors in a child: here
  // the child is to have them until it execs.
  spawned.pid = _Fork();
  if (spawned.pid < 0) return system_error(errno, "fork");
  if (spawned.pid == 0) run_child(child);
  complaint.writer.reset();
  TRY(wait_for_exec(complaint.reader, spec.command[0]));
  spawned.input = std::move(input.writer);
  spawned.output = std::move(output.reader);
  spawned.error = std::move(errors.reader);
  return spawned;
}

void LocalSpawner::send_signal(const Spawned& rank, int number) {
  if (rank.pid > 0) (void)kill(-rank.pid, number);
}

void LocalSpawner::end(const Spawned& rank) {
  send_signal(rank, SIGTERM);
  send_signal(rank, SIGCONT);  // a stopped process would not hear of it
}

}  // namespace unisono::uni_run
