// The hosts of a job: the host file, -H's list, and which ranks stand where. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace unisono::uni_run {

struct HostSlots {
  std::string name;  // as ssh takes it: a name, an address, user@name
  int slots = 1;     // most ranks
};
// Lines of "NAME", "NAME slots=N" or "NAME:N"; "#" begins a comment. Errors name file and line.
Result<std::vector<HostSlots>> parse_host_file(std::string_view text, std::string_view file);
// "a:2,b,[fd00::1]:4".
Result<std::vector<HostSlots>> parse_host_list(std::string_view list);
// The hosts that `ranks` ranks take, filled in order; slots are then as many as are taken.
// kInvalidArgument: there are not enough. `ranks` 0: all slots.
Result<std::vector<HostSlots>> place_ranks(const std::vector<HostSlots>& hosts, int ranks);

// Where other hosts reach it: without "user@".
std::string address_of(const HostSlots& host);

}  // namespace unisono::uni_run
