// Finding and ending processes that have left their rank's process group.
#pragma once

#include <sys/types.h>

#include <string_view>

namespace unisono::uni_run {

// Kills and reaps every child of this process but `except`, and what they leave to us as the
// subreaper, until there is none. Blocks, at most some seconds; false: one could not be killed.
bool kill_descendants(pid_t except);
// Kills every process whose environment holds exactly `marker` ("NAME=VALUE"), until there is none.
void kill_marked(std::string_view marker);

}  // namespace unisono::uni_run
