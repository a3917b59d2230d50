// fault: a transport with trouble, chosen by a seed: credit that seems to be missing, messages that
// come late, a link that dies. Everything that it does, a real transport may do; so whatever works
// over it may be relied on.
#pragma once

#include <cstdint>
#include <memory>

#include "transports/transport.h"

namespace unisono {

struct FaultOptions {
  uint64_t seed = 1;
  double again_probability = 0;  // of a send or reserve to find no credit; at most 0.99
  int delay_calls = 0;           // each message is shown up to so many progress() calls late
  int32_t fail_peer = -1;        // this rank's link to it fails ...
  uint64_t fail_after = 0;       // ... after so many messages sent to it or received from it
};

// Driven like the transport inside. A failed link is kRemoteError and names the peer.
std::unique_ptr<Transport> wrap_fault(std::unique_ptr<Transport> inner,
                                      const FaultOptions& options);

}  // namespace unisono
