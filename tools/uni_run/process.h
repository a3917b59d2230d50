// Spawner: how a rank comes to life. Here as a process of this machine; ssh.h has the one whose
// processes stand for other hosts.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/net/socket.h"
#include "base/status.h"
#include "tools/uni_run/signals.h"

namespace unisono::uni_run {

enum class Input { kNull, kInherited, kPiped };

struct RankSpec {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // "NAME=VALUE"
  std::vector<int> cores;                // empty: not bound
  Input input = Input::kNull;
  bool piped_output = true;  // else the rank writes to our own standard output and error
  int inherited_fd = -1;     // kept open across exec, under the same number
};

// A started rank. Its pid is also its process group.
struct Spawned {
  pid_t pid = -1;
  net::Fd input, output, error;  // our ends, non-blocking; invalid where there is no pipe
};

class Spawner {
 public:
  virtual ~Spawner() = default;
  // Returns when the command runs. kInvalidArgument: no such command; kSystemError: anything else.
  virtual Result<Spawned> spawn(const RankSpec& spec) = 0;
  // To the rank and to what it has started. A rank that is gone is no error.
  virtual void send_signal(const Spawned& rank, int number) = 0;
  // Asks it to end: the job ends.
  virtual void end(const Spawned& rank) = 0;
};

class LocalSpawner : public Spawner {
 public:
  explicit LocalSpawner(const SignalState& signals) : signals_(signals) {}
  Result<Spawned> spawn(const RankSpec& spec) override;
  void send_signal(const Spawned& rank, int number) override;
  void end(const Spawned& rank) override;

 private:
  const SignalState signals_;
};

}  // namespace unisono::uni_run
