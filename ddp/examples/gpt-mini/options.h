#pragma once

#include <cstdint>
#include <string>

#include "unisono/ddp.h"

namespace gpt_mini {

struct Options {
  std::string text_file = "/usr/share/common-licenses/GPL-3";
  int steps = 500;
  int batch = 16;  // Sequences a step, of all ranks together.
  int context = 64;
  int layers = 2, heads = 4, width = 64;
  double learning_rate = 2e-3;
  uint64_t seed = 0;
  uniBucketHook_t hook = nullptr;
  bool bucket_views = false;
  int bucket_kib = 64;  // This model has 0.4 MiB of gradients; the default of 25 MiB is for others.
  int replicas = 0;     // --dp. 0: ranks are processes.
  std::string losses_file, plot_file, checkpoint_file;
  int checkpoint_every = 100;  // Steps.
};

// Reads the command line. Returns a negative number, or the exit status when there is nothing to
// do.
int read_options(int argc, char** argv, Options* options);

}  // namespace gpt_mini
