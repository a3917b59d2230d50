// Ranks as real processes, for tests of death. Forked before this process has used the library; ids
// go through pipes.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "unisono/unisono.h"

namespace unisono::testing {

// A pipe between the processes. Closed with the object.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe(ends_), 0); }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  void put(const void* data, size_t bytes) const {
    if (write(ends_[1], data, bytes) != static_cast<ssize_t>(bytes)) _exit(90);
  }
  void get(void* data, size_t bytes) const {
    auto* at = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t got = read(ends_[0], at, bytes);
      if (got <= 0) _exit(91);
      at += got;
      bytes -= static_cast<size_t>(got);
    }
  }
  void tell() const { put("!", 1); }
  void hear() const {
    char byte = 0;
    get(&byte, 1);
  }

 private:
  int ends_[2] = {-1, -1};
};

// body(rank, comm) in one process a rank; it reports by what expect() collects. The processes are
// killed and collected at the end of scope.
class Processes {
 public:
  using Body = std::function<void(int rank, uniComm_t comm)>;
  // `before(rank)` runs in the rank's process before the library does: its environment.
  Processes(
      int ranks, const std::string& transport, const Body& body,
      const std::function<void(int rank)>& before = [](int) {})
      : ids_(ranks) {
    std::vector<std::unique_ptr<Pipe>> id_pipes;
    for (int r = 0; r < ranks; r++) id_pipes.push_back(std::make_unique<Pipe>());
    std::fflush(nullptr);
    for (int rank = 0; rank < ranks; rank++) {
      const pid_t pid = fork();
      if (pid == 0) {
        alarm(100);  // never outlives a test that went wrong
        before(rank);
        uniUniqueId id;
        if (rank == 0) {
          if (uniGetUniqueId(&id) != uniSuccess) _exit(92);
          for (int r = 1; r < ranks; r++) id_pipes[static_cast<size_t>(r)]->put(&id, sizeof id);
        } else {
          id_pipes[static_cast<size_t>(rank)]->get(&id, sizeof id);
        }
        uniConfig_t config = UNI_CONFIG_INITIALIZER;
        config.transports = transport.c_str();
        config.timeout_ms = 60'000;
        uniComm_t comm = nullptr;
        if (uniCommInitRankConfig(&comm, ranks, id, rank, &config) != uniSuccess) {
          std::fprintf(stderr, "rank %d: init: %s\n", rank, uniGetLastError(nullptr));
          _exit(93);
        }
        body(rank, comm);
        uniCommDestroy(comm);
        std::fflush(nullptr);
        _exit(::testing::Test::HasFailure() ? 1 : 0);
      }
      ids_[static_cast<size_t>(rank)] = pid;
    }
  }
  ~Processes() {
    for (int r = 0; r < static_cast<int>(ids_.size()); r++) {
      if (ids_[static_cast<size_t>(r)] > 0) kill_now(r), wait_for(r);
    }
  }
  Processes(const Processes&) = delete;
  void kill_now(int rank) const { kill(ids_[static_cast<size_t>(rank)], SIGKILL); }
  // The exit status, or 1000 + the signal that ended it.
  int wait_for(int rank) {
    int status = 0;
    const pid_t pid = std::exchange(ids_[static_cast<size_t>(rank)], -1);
    if (waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  std::vector<pid_t> ids_;
};

}  // namespace unisono::testing
