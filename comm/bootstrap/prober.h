// Prober: connects to several addresses at once and keeps the first connection that completes a
// protocol's opening.
//
// Blocks the calling thread in poll(): start-up only. A failed address is tried again until the
// deadline.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/net/socket.h"
#include "base/status.h"

namespace unisono::bootstrap {

// One side of an opening, without descriptors. One object a connection.
class Opening {
 public:
  virtual ~Opening() = default;
  virtual std::string first_bytes() = 0;
  virtual size_t wanted() const = 0;  // how many bytes of the peer may be read now
  // Takes exactly wanted() bytes, appends what is to be sent. kInProgress: more is to come; ok:
  // completed.
  virtual Status take(std::string_view bytes, std::string& out) = 0;
};

struct Won {
  net::Fd fd;
  net::Address address;
  std::unique_ptr<Opening> opening;
};

struct ProbeOptions {
  std::vector<net::Address> addresses;
  std::function<std::unique_ptr<Opening>()> make_opening;
  // For a unix address: the peer must run under our own uid.
  bool same_user = false;
  int64_t deadline_ns = 0;
  // Gives up before the deadline when every address has answered with a refusal for so long.
  // kNeverNs: does not.
  int64_t patience_ns = 0;
  std::string what;  // for messages: "rendezvous"
};
// kTimeout at the deadline, kRemoteError when refused, or an opening's kInvalidArgument at once;
// the message says what each address answered.
Result<Won> probe(const ProbeOptions& options);

// Milliseconds for poll(), rounded up; 0 when the deadline has passed.
int poll_timeout_ms(int64_t deadline_ns);

}  // namespace unisono::bootstrap
