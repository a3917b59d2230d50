// What uni-info says, as one JSON object: printed as it is, or in words (text.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace unisono::uni_info {

using Json = nlohmann::ordered_json;

// Everything. Reads the machine and the environment, changes nothing. A part that cannot be read
// holds {"problem": why}.
Json gather();

// Its parts. `filter` is UNISONO_INTERFACES.
Json describe_addresses(const std::string& filter);  // those the library tells others, best first
Json describe_devices();  // of device buffers: each kind's library, loaded, or why not
Json describe_interfaces(const std::string& filter);  // all there are; why one is left out
Json describe_machine();   // sockets, cores, caches, memory; what this process may use
Json describe_settings();  // every variable that the library reads: value and where it came from

}  // namespace unisono::uni_info
