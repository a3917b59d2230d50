#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace digits {

enum class Type { kFloat32, kFloat64 };
enum class Hook { kNone, kAllReduce, kFloat16, kBfloat16 };

struct Options {
  Type type = Type::kFloat32;
  std::vector<int> hidden = {64, 32};
  int epochs = 15;
  int batch = 48;  // Of all ranks together.
  double learning_rate = 0.1, momentum = 0.9;
  uint64_t seed = 0;
  Hook hook = Hook::kNone;
  bool bucket_views = false;
  int bucket_kib = 8;  // This model has 27 KiB of gradients; the default of 25 MiB is for others.
  int replicas = 0;    // --dp: threads of one process. 0: ranks are processes.
  std::string data_file;  // Empty: the embedded one.
  std::string checkpoint_file, losses_file, plot_file;
  int checkpoint_every = 0;  // Steps; 0: an epoch.
};

// Reads the command line. Returns a negative number, or the exit status when there is nothing to
// do.
int read_options(int argc, char** argv, Options* options);

}  // namespace digits
