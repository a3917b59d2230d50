// The state of a training, in a file that is either the old one or the new one, never half of both.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace digits {

// What must be the same for a training to go on, and where it is.
struct Progress {
  // Of the run.
  uint64_t type_bytes = 0;  // 4 or 8: --type
  uint64_t batch = 0, seed = 0, train_images = 0;
  std::vector<uint64_t> layers;
  // Where it is: after `step` steps, `images` of `epoch` were used by all ranks together.
  uint64_t epoch = 0, images = 0, step = 0;
  std::vector<double> losses;  // One a step.
};

// Numbers of parameters and optimizer, in the order in which they are given.
using Tensors = std::vector<std::span<std::byte>>;

// "" or why write_checkpoint could not make its file, so that nobody finds out after an epoch.
std::string try_checkpoint(const std::string& file);

// "" or what went wrong. Written beside `file`, synced, renamed over it, the folder synced;
// removed again if it fails.
std::string write_checkpoint(const std::string& file, const Progress& progress,
                             const Tensors& tensors);

enum class Loaded { kNo, kYes, kFailed };
// kNo: there is no such file. kFailed: *problem says why; nothing was changed. `progress` comes
// with the values of this run, which the file must have too.
Loaded read_checkpoint(const std::string& file, Progress* progress, const Tensors& tensors,
                       std::string* problem);

}  // namespace digits
