#include "bench/comm_bench/launch.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace bench {
namespace {

// From the first rank's failure: the others have heard of it by then, or cannot hear (SIGSTOP).
constexpr std::chrono::seconds kGrace(10);
constexpr size_t kSharedBytes = size_t{1} << 30;  // address space; pages are taken when touched

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; core++) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void pin(const std::vector<int>& cores, int rank) {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores[static_cast<size_t>(rank) % cores.size()], &set);
  (void)sched_setaffinity(0, sizeof set, &set);
}

int finish(uniComm_t comm, int status) {
  must(uniCommDestroy(comm), "uniCommDestroy");
  return status;
}

// One pipe; rank 0 writes the id once a reader, each reader takes one: 128 bytes are written and
// read whole.
int run_child(const Options& options, const Body& body, int rank, const int id_pipe[2],
              const Shared& shared) {
  uniUniqueId id;
  // Where rank 0 ends without an id, the others' reads must see the pipe's end: nobody else may
  // hold it.
  if (rank != 0) close(id_pipe[1]);
  if (rank == 0) {
    must(uniGetUniqueId(&id), "uniGetUniqueId");
    for (int r = 1; r < options.ranks; r++) {
      if (write(id_pipe[1], &id, sizeof id) != static_cast<ssize_t>(sizeof id)) return 3;
    }
  } else if (read(id_pipe[0], &id, sizeof id) != static_cast<ssize_t>(sizeof id)) {
    return 3;
  }
  close(id_pipe[0]);
  if (rank == 0) close(id_pipe[1]);
  const uniConfig_t config = make_config(options);
  uniComm_t comm = nullptr;
  must(uniCommInitRankConfig(&comm, options.ranks, id, rank, &config), "uniCommInitRankConfig");
  return finish(comm, body(comm, rank, options.ranks, shared));
}

// The worst exit status. A rank that outlives another's failure by kGrace is killed.
int wait_for(const std::vector<pid_t>& children) {
  using Clock = std::chrono::steady_clock;
  int worst = 0;
  bool killed = false;
  Clock::time_point end{};
  for (size_t left = children.size(); left > 0;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, worst == 0 || killed ? 0 : WNOHANG);
    if (pid < 0) break;
    if (pid == 0) {
      killed = Clock::now() >= end;
      // A number that was waited for may be another's by now; WNOWAIT asks whether it is ours.
      for (const pid_t child : children) {
        siginfo_t state;
        if (killed &&
            waitid(P_PID, static_cast<id_t>(child), &state, WEXITED | WNOHANG | WNOWAIT) == 0)
          kill(child, SIGKILL);
      }
      if (!killed) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    left--;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (worst == 0 && code != 0) end = Clock::now() + kGrace;
    if (code > worst) worst = code;
    if (WIFSIGNALED(status)) {
      fprintf(stderr, "comm-bench: process %d was ended by signal %d\n", static_cast<int>(pid),
              WTERMSIG(status));
    }
  }
  return worst;
}

int run_local(const Options& options, const Body& body) {
  Shared shared;
  shared.memory = mmap(nullptr, kSharedBytes, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  shared.bytes = shared.memory == MAP_FAILED ? 0 : kSharedBytes;
  int id_pipe[2];
  if (pipe(id_pipe) != 0) return perror("pipe"), 3;
  const std::vector<int> cores = allowed_cores();
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  for (int rank = 0; rank < options.ranks; rank++) {
    const pid_t pid = fork();
    if (pid < 0) return perror("fork"), 3;
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(3);  // the parent died before prctl
      pin(cores, rank);
      const int status = flushed(run_child(options, body, rank, id_pipe, shared));
      fflush(nullptr);
      _exit(status);
    }
    children.push_back(pid);
  }
  close(id_pipe[0]);
  close(id_pipe[1]);
  return wait_for(children);
}

}  // namespace

uniConfig_t make_config(const Options& options) {
  uniConfig_t config = UNI_CONFIG_INITIALIZER;
  if (options.timeout_s > 0) config.timeout_ms = int64_t{options.timeout_s} * 1000;
  if (!options.transport.empty()) config.transports = options.transport.c_str();
  if (!options.algorithm.empty()) config.algorithm = options.algorithm.c_str();
  config.reproducible = options.reproducible ? 1 : 0;
  config.name = "comm-bench";
  return config;
}

void pin_to_core(int rank) {
  pin(allowed_cores(), rank);
}

int flushed(int status) {
  errno = 0;
  if (fflush(stdout) == 0 && ferror(stdout) == 0) return status;
  fprintf(stderr, "comm-bench: standard output: %s\n",
          errno != 0 ? strerror(errno) : "cannot be written");
  return 3;
}

void must(uniResult_t result, const char* what, uniComm_t comm) {
  if (result == uniSuccess) return;
  fprintf(stderr, "comm-bench: %s: %s: %s\n", what, uniGetErrorString(result),
          uniGetLastError(comm));
  fflush(nullptr);
  _exit(3);
}

int launch(const Options& options, const Body& body) {
  if (options.ranks > 0) return run_local(options, body);
  const uniConfig_t config = make_config(options);
  uniComm_t comm = nullptr;
  must(uniCommInitUrl(&comm, "env://", -1, -1, &config), "uniCommInitUrl");
  int rank = 0, ranks = 1;
  must(uniCommUserRank(comm, &rank), "uniCommUserRank");
  must(uniCommCount(comm, &ranks), "uniCommCount");
  return finish(comm, body(comm, rank, ranks, Shared{}));
}

}  // namespace bench
