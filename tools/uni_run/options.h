// What the user asked of uni-run.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace unisono::uni_run {

enum class Bind { kCore, kShare, kNone };

struct Options {
  int ranks = 0;
  Bind bind = Bind::kCore;
  bool prefix = true;
  double grace_s = 5;       // between SIGTERM and SIGKILL when the job ends early
  double timeout_s = 0;     // of the whole job; 0: none
  std::string master_host;  // empty: 127.0.0.1 and a port of the kernel's choice
  int master_port = 0;
  std::vector<std::pair<std::string, std::string>> variables;  // --env, later ones win
  std::vector<std::string> command;                            // never empty
};

// What is to be run, or the exit status of a program that has printed its help or an error.
struct Parsed {
  std::optional<Options> options;
  int exit_status = 0;
};
Parsed parse_options(int argc, char** argv);

}  // namespace unisono::uni_run
