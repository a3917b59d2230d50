// Control: a tree of small authenticated links, kept from init on, apart from the data path, which
// never waits for it.
//
// It spreads one error to every rank, compares what stalled ranks believe they are doing, and
// carries the small exchanges of split, group creation and keys. All functions: any thread, never
// blocking, unless said.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/message_links.h"
#include "base/net/endpoint.h"
#include "base/status.h"
#include "base/types.h"

namespace unisono {

// One issued collective, as remembered by each rank (the recorder) and compared on a stall.
struct CallRecord {
  uint64_t sequence = 0;
  uint64_t fingerprint = 0;  // of this call and all before it
  uint64_t before = 0;       // of those before it alone: equal where the histories are
  uint64_t count = 0;
  uint64_t blocks_hash = 0;  // of a v-variant's block counts, else 0
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kInt8;
  RedOp op = RedOp::kSum;
  int32_t root = -1;
  char algorithm[20] = {};
};
std::string describe(const CallRecord& record);  // "all_reduce #7 (float32, sum, count 100, ring)"

// One unfinished send or recv of a waiting rank.
struct PairWait {
  bool receive = false;
  int32_t peer = -1;     // -1: from any rank
  uint64_t ordinal = 0;  // of its message among those from the sender to the receiver, from 1
  DataType type = DataType::kUint8;
  uint64_t count = 0;
};

// How far a rank has come with send and recv with one peer, its present operation included.
struct PairTally {
  int32_t peer = -1;
  uint64_t sent = 0;      // messages issued to the peer
  uint64_t received = 0;  // messages of the peer that were matched with a recv
  uint64_t open = 0;      // receives that may take a further one
};

inline constexpr size_t kMaxPairWaits = 16, kMaxPairTallies = 256;  // of one report

// What a waiting rank publishes.
struct StallReport {
  CallRecord call;    // sequence 0: not in a collective
  int32_t step = -1;  // of the lane that waits
  int32_t lane = -1;
  int32_t peer = -1;            // it waits for, -1 unknown
  bool suspicious = false;      // a message with another fingerprint was received: compare at once
  uint64_t last = 0;            // the collective that it issued last
  std::vector<PairWait> waits;  // all of these must end; not empty: it is in send/recv
  std::vector<PairTally> tallies;  // of peers that any message was exchanged with
  bool all_tallies = true;         // false: there are more, left out
};

struct ControlOptions {
  int32_t rank = 0, ranks = 1;
  Env* env = nullptr;
  std::vector<std::string> hosts;  // names by rank, for messages; may be empty
  // Called in the links' context: what this rank issued as collective number `sequence`, if it
  // remembers.
  std::function<std::optional<CallRecord>(uint64_t sequence)> recorder;
  // Its last one; may be null.
  std::function<std::optional<CallRecord>()> latest;
  // Called once, in the links' context or the raiser's thread, when the communicator has failed:
  // wakes the driver.
  std::function<void()> failed;
  // Called in the links' context when a rank has left in order; may be null.
  std::function<void()> left;
};

class Control {
 public:
  // Opens the tree (arity 8) over `links`, which it then owns. Blocks up to the deadline.
  static Result<std::unique_ptr<Control>> create(std::unique_ptr<MessageLinks> links,
                                                 ControlOptions options, int64_t deadline_ns);
  virtual ~Control() = default;  // close() first

  // Fails the communicator here and floods the error record to every rank; the first error wins on
  // each rank. Elsewhere the message is prefixed by who raised it ("rank 3 (host): ..."), unless it
  // names that rank itself. An abort is raise(kAborted).
  virtual void raise(const Status& status) = 0;
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  virtual Status error() const = 0;  // ok while not failed

  // A rank that has waited a second tells, and again every second. Rank 0 floods the question;
  // ranks whose record of that sequence differs raise kMismatch naming both sides; every rank
  // learns which ranks have arrived at that sequence. Where the stalled ranks' calls wait for each
  // other (a recv on one rank against a collective on another), rank 0 raises kMismatch naming
  // them.
  virtual void publish_stall(const StallReport& report) = 0;
  // Ranks known to be waiting in collective number `sequence` (this one not included), sorted. For
  // the timeout's message.
  virtual std::vector<int32_t> arrived(uint64_t sequence) const = 0;
  // A rank that has left in order without issuing collective number `sequence`, so that it cannot
  // complete; -1: none known.
  virtual int32_t left_before(uint64_t sequence) const = 0;
  virtual bool has_left(int32_t rank) const = 0;  // in order, and without a failure before

  // Mailbox, routed through the tree. Keys are exact strings; one message a (from, key) at a time
  // is delivered once.
  virtual void post(int32_t to, const std::string& key, std::string payload) = 0;
  // Blocks (through Env) until it is there, the communicator fails, or the deadline.
  virtual Result<std::string> await(int32_t from, const std::string& key, int64_t deadline_ns) = 0;

  // Farewell: every rank learns that we left and after which collective, and neighbours do not take
  // our end for a death. Blocks briefly. After it no
  // callback runs.
  virtual void close() = 0;

 protected:
  std::atomic<bool> failed_{false};
};

// Links over authenticated sockets: dials the lower-numbered neighbour, accepts from the higher
// (Purpose::kControl).
std::unique_ptr<MessageLinks> make_socket_links(net::Endpoint& endpoint, int32_t rank);

}  // namespace unisono
