// Settings of one communicator: the caller's config over the environment over the defaults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace unisono {

inline constexpr int64_t kDefaultTimeoutMs = 30 * 60 * 1000;

struct TransportChoice {
  std::string name;     // "sim"
  std::string options;  // "seed=7,latency_us=2"
};

struct Settings {
  int64_t timeout_ms = kDefaultTimeoutMs;
  std::vector<TransportChoice> transports;  // in order of preference; never empty
  std::string algorithm;                    // forced; empty: free
  std::string plan_file;                    // empty: none
  bool reproducible = false;
  std::string device;         // of the buffers: "cuda"; empty: the host's
  int32_t device_index = -1;  // -1: the one that is current on the initialising thread
  std::string name;
  int64_t slice_bytes = 0;  // 0: the transports' wish

  // The list as text, for messages and children.
  std::string transports_text() const;
};

// Reads uniConfig_t.device: "cpu", "cuda", "cuda:1". kInvalidArgument names what there is.
Status parse_device(const std::string& text, Settings* settings);

// "shm,tcp" or "sim:seed=7,latency_us=2" (options of a transport follow it: each item with '='
// belongs to the transport before). kInvalidArgument names the unknown word.
Result<std::vector<TransportChoice>> parse_transports(const std::string& text);

}  // namespace unisono
