// The agent: uni-run on one of several hosts, started over ssh (ssh.h), that runs this host's part
// of the job.
#pragma once

#include <optional>
#include <string>

#include "base/net/socket.h"
#include "base/status.h"
#include "tools/uni_run/environment.h"
#include "tools/uni_run/options.h"

namespace unisono::uni_run {

// The lines on our standard input by which the job is steered. Owner: main(). One thread.
class Orders {
 public:
  // Blocks for the next line; nothing: the input has ended.
  std::optional<std::string> wait_for_line();
  // For a poll loop: takes what is there. False: the input has ended.
  bool read_some();
  std::optional<std::string> next_line();  // of what was read
  static int fd() { return 0; }

 private:
  std::string text_;
};

// Says hello and waits for the order to start. Nothing: the job was ended before it began.
Result<std::optional<Job>> await_start(Orders* orders);

}  // namespace unisono::uni_run
