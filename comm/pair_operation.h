// PairOperation: sends and receives between pairs of ranks, issued together (a group, or one call).
// All of them move at once, so that a pair exchanging in both directions cannot block itself.
// Matched in order per pair.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/bound_plan.h"
#include "comm/operation.h"
#include "comm/step_runner.h"

namespace unisono {

inline constexpr int32_t kAnySource = -1;

struct Transfer {
  bool receive = false;
  std::byte* data = nullptr;  // only read when sending
  uint64_t count = 0;
  DataType type = DataType::kUint8;
  int32_t peer = 0;       // kAnySource: whichever message is there first
  int* source = nullptr;  // of a receive from any: set when matched
};

class PairOperation : public Operation {
 public:
  explicit PairOperation(Communicator& communicator) : Operation(communicator) {}
  void add(const Transfer& transfer) { transfers_.push_back({transfer}); }

  Status start() override;
  Advance advance() override;
  void abandon() override;
  StallReport stall() const override;
  void explain(StallReport* report) const override;
  std::string describe() const override;

 private:
  struct State {
    Transfer transfer;
    uint64_t fingerprint = 0;
    uint64_t ordinal = 0;           // of its message in the pair; of a receive: once matched
    int unread = 0;                 // of its slices posted, how many the transport still reads
    uint64_t moved = 0, bytes = 0;  // of the payload
    bool matched = false, done = false;
  };
  struct Peer {  // one direction of one pair
    int32_t rank = 0;
    BoundChannel channel;
    int active = -1;       // index of the transfer in progress
    size_t unmatched = 0;  // receives from this rank by name whose message has not come
    const std::byte* hinted = nullptr;
  };
  struct Posted {
    PendingSend send;
    size_t transfer = 0;
  };
  Status open_peers();
  void settle_posted();
  const State* first_open() const;
  int next_for(int32_t peer, bool receive) const;
  bool advance_send(Peer& peer);
  bool advance_recv(Peer& peer);
  bool match(Peer& peer, const Message& message);
  void hint(Peer& peer);
  uint64_t slice(const State& state) const;
  bool has_any_ = false;
  size_t unmatched_any_ = 0;  // receives from any rank whose message has not come

  std::vector<State> transfers_;
  std::vector<Peer> senders_, receivers_;
  std::vector<Posted> posted_;
  size_t left_ = 0;
};

}  // namespace unisono
