// What the user asked of uni-run.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/uni_run/hosts.h"

namespace unisono::uni_run {

enum class Bind { kCore, kShare, kNone };

// The part of a job that one uni-run starts: all of it, or that of one host of several.
struct Part {
  bool is_agent = false;  // started by another uni-run, over ssh
  int first_rank = 0;
  int world = 0;  // ranks of all hosts
  int node = 0, nodes = 1;
};

struct Options {
  int ranks = 0;  // that this uni-run starts
  Part part;
  std::vector<HostSlots> hosts;  // empty: this machine
  std::string ssh;               // its words, before a host's name and a command
  std::string remote_program;    // uni-run on the other hosts; empty: where this one lies
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
