#include "comm/pair_operation.h"

#include <algorithm>

#include "comm/communicator.h"

namespace unisono {
namespace {

// In clear, so that a receiver can say what the sender meant: bit 63, the pair's sequence, the
// type, the count.
constexpr uint64_t kCountMask = (uint64_t{1} << 40) - 1;

uint64_t pair_fingerprint(uint64_t sequence, DataType type, uint64_t count) {
  return uint64_t{1} << 63 | (sequence & 0x7fff) << 48 | static_cast<uint64_t>(type) << 40 |
         (count & kCountMask);
}

std::string describe_fingerprint(uint64_t fingerprint) {
  const auto type = static_cast<uint8_t>(fingerprint >> 40 & 0xff);
  return fmt::format("message {} of {} {}", fingerprint >> 48 & 0x7fff, fingerprint & kCountMask,
                     type < kDataTypes ? type_name(static_cast<DataType>(type)) : "unknown type");
}

}  // namespace

Status PairOperation::open_peers() {
  Communicator& comm = communicator();
  std::vector<int32_t> sends, receives;
  for (const State& state : transfers_) {
    if (!state.transfer.receive) {
      sends.push_back(state.transfer.peer);
    } else if (state.transfer.peer != kAnySource) {
      receives.push_back(state.transfer.peer);
    } else {
      has_any_ = true;
      unmatched_any_++;
      for (int32_t r = 0; r < comm.ranks(); r++) {
        if (r != comm.rank() && !comm.out_of_reach(r)) receives.push_back(r);
      }
    }
  }
  for (std::vector<int32_t>* list : {&sends, &receives}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  for (const int32_t rank : sends) {
    TRY_ASSIGN(const BoundChannel channel, comm.open_pair_send(rank));
    senders_.push_back({rank, channel});
  }
  for (const int32_t rank : receives) {
    TRY_ASSIGN(const BoundChannel channel, comm.open_pair_recv(rank));
    const auto from_it = [rank](const State& state) {
      return state.transfer.receive && state.transfer.peer == rank;
    };
    const auto unmatched = std::count_if(transfers_.begin(), transfers_.end(), from_it);
    receivers_.push_back({rank, channel});
    receivers_.back().unmatched = static_cast<size_t>(unmatched);
  }
  return {};
}

Status PairOperation::start() {
  TRY(open_peers());
  for (State& state : transfers_) {
    const Transfer& t = state.transfer;
    state.bytes = t.count * type_bytes(t.type);
    if (!t.receive) {
      state.ordinal = communicator().next_pair_send(t.peer);
      state.fingerprint = pair_fingerprint(state.ordinal, t.type, t.count);
      state.matched = true;
    }
  }
  left_ = transfers_.size();
  return {};
}

uint64_t PairOperation::slice(const State& state) const {
  return std::min<uint64_t>(state.bytes - state.moved, communicator().agreement().slice_bytes);
}

int PairOperation::next_for(int32_t peer, bool receive) const {
  for (size_t i = 0; i < transfers_.size(); i++) {
    const State& state = transfers_[i];
    if (state.done || state.transfer.receive != receive) continue;
    if (receive && state.matched) continue;
    if (state.transfer.peer == peer || (receive && state.transfer.peer == kAnySource)) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

bool PairOperation::advance_send(Peer& peer) {
  if (peer.active < 0) peer.active = next_for(peer.rank, false);
  if (peer.active < 0) return false;
  State& state = transfers_[static_cast<size_t>(peer.active)];
  const uint64_t bytes = slice(state);
  const MessageHeader header{state.fingerprint, static_cast<uint32_t>(bytes)};
  const std::byte* data = state.transfer.data + state.moved;
  const SendOutcome outcome = peer.channel.send->send(header, data);
  if (outcome == SendOutcome::kAgain) return false;
  if (outcome == SendOutcome::kPosted) {
    posted_.push_back({{peer.channel.send, peer.channel.send->accepted(), data, data + bytes},
                       static_cast<size_t>(peer.active)});
    state.unread++;
  }
  state.moved += bytes;
  if (state.moved == state.bytes) {
    state.done = true;
    left_--;
    peer.active = -1;
  }
  return true;
}

// The first message of a transfer decides which receive it belongs to: the earliest issued that
// takes this peer.
bool PairOperation::match(Peer& peer, const Message& message) {
  Communicator& comm = communicator();
  const int index = next_for(peer.rank, true);
  CHECK(index >= 0);
  State& state = transfers_[static_cast<size_t>(index)];
  const Transfer& t = state.transfer;
  state.fingerprint = pair_fingerprint(comm.peek_pair_recv(peer.rank), t.type, t.count);
  if (message.header.fingerprint != state.fingerprint || message.header.bytes != slice(state)) {
    comm.fail(error(Code::kMismatch, "{} sent {}, {} receives {}", comm.peer_name(peer.rank),
                    describe_fingerprint(message.header.fingerprint), comm.peer_name(comm.rank()),
                    describe_fingerprint(state.fingerprint)));
    return false;
  }
  state.ordinal = comm.next_pair_recv(peer.rank);
  state.matched = true;
  (t.peer == kAnySource ? unmatched_any_ : peer.unmatched)--;
  if (t.source != nullptr) *t.source = peer.rank;
  peer.active = index;
  return true;
}

// A receive whose next message can only be its own may land in the caller's memory directly.
void PairOperation::hint(Peer& peer) {
  if (has_any_ || peer.channel.prefers_reserve) return;
  const int index = peer.active >= 0 ? peer.active : next_for(peer.rank, true);
  if (index < 0) return;
  const State& state = transfers_[static_cast<size_t>(index)];
  std::byte* at = state.transfer.data + state.moved;
  if (peer.hinted == at || slice(state) == 0) return;
  peer.hinted = at;
  peer.channel.recv->post(at, static_cast<uint32_t>(slice(state)));
}

bool PairOperation::advance_recv(Peer& peer) {
  // What comes when all is received is a later operation's: to lend it would keep it from landing
  // where that wants it.
  if (peer.active < 0 && peer.unmatched + unmatched_any_ == 0) return false;
  hint(peer);
  Message message;
  if (!peer.channel.recv->lend(&message)) return false;
  if (peer.active < 0 && !match(peer, message)) return false;
  State& state = transfers_[static_cast<size_t>(peer.active)];
  const uint64_t bytes = slice(state);
  if (message.header.fingerprint != state.fingerprint || message.header.bytes != bytes) {
    communicator().fail(error(Code::kMismatch, "{} broke off a message half way",
                              communicator().peer_name(peer.rank)));
    return false;
  }
  std::byte* at = state.transfer.data + state.moved;
  if (message.data != at && bytes != 0) copy_bytes(at, message.data, bytes, false);
  peer.channel.recv->release();
  peer.hinted = nullptr;
  state.moved += bytes;
  if (state.moved == state.bytes) {
    state.done = true;
    left_--;
    peer.active = -1;
  }
  return true;
}

Advance PairOperation::advance() {
  bool moved = false;
  for (Peer& peer : senders_) moved = advance_send(peer) || moved;
  for (Peer& peer : receivers_) moved = advance_recv(peer) || moved;
  if (left_ == 0) {
    settle_posted();
    if (posted_.empty()) return Advance::kDone;
  }
  return moved ? Advance::kMoved : Advance::kIdle;
}

void PairOperation::abandon() {
  for (Peer& peer : receivers_) {
    if (peer.hinted != nullptr) peer.channel.recv->cancel_post();
  }
}

void PairOperation::settle_posted() {
  std::erase_if(posted_, [this](const Posted& posted) {
    const bool complete = posted.send.end->completed() >= posted.send.ordinal;
    if (complete) transfers_[posted.transfer].unread--;
    return complete;
  });
}

const PairOperation::State* PairOperation::first_open() const {
  const auto open = std::find_if(transfers_.begin(), transfers_.end(), [](const State& state) {
    return !state.done || state.unread > 0;
  });
  return open == transfers_.end() ? nullptr : &*open;
}

StallReport PairOperation::stall() const {
  StallReport report;
  if (const State* open = first_open()) {
    report.peer = open->transfer.peer;
    return report;
  }
  for (const Peer& peer : senders_) {
    // What was accepted for it never gets out.
    if (communicator().out_of_reach(peer.rank)) report.peer = peer.rank;
  }
  return report;
}

// Of all that is unfinished any part shows that the whole cannot end: the first few do.
void PairOperation::explain(StallReport* report) const {
  for (const State& state : transfers_) {
    const Transfer& t = state.transfer;
    if (report->waits.size() == kMaxPairWaits) break;
    if (state.done && state.unread == 0) continue;
    const bool any = t.peer == kAnySource;
    // A later receive from the same peer waits for a later message; for this one at least.
    const uint64_t ordinal = state.matched ? state.ordinal
                             : any         ? 0
                                           : communicator().peek_pair_recv(t.peer);
    if (any && state.matched) continue;  // its sender is at it
    report->waits.push_back({t.receive, t.peer, ordinal, t.type, t.count});
  }
  for (const Peer& peer : receivers_) {
    const auto takes = [&](const State& state) {
      return state.transfer.receive && !state.matched &&
             (state.transfer.peer == peer.rank || state.transfer.peer == kAnySource);
    };
    const auto open =
        static_cast<uint64_t>(std::count_if(transfers_.begin(), transfers_.end(), takes));
    if (open == 0) continue;
    auto tally = std::find_if(report->tallies.begin(), report->tallies.end(),
                              [&](const PairTally& one) { return one.peer == peer.rank; });
    if (tally == report->tallies.end() && report->tallies.size() == kMaxPairTallies) {
      report->all_tallies = false;
      return;
    }
    if (tally == report->tallies.end()) {
      tally = report->tallies.insert(tally, PairTally{peer.rank, 0, 0, 0});
    }
    tally->open = open;
  }
}

std::string PairOperation::describe() const {
  const State* open = first_open();
  if (open == nullptr) return "send/recv";
  const Transfer& t = open->transfer;
  const std::string peer = communicator().peer_name(t.peer);
  return fmt::format("{} {} ({}, count {}, {} of {} bytes moved)",
                     t.receive ? "recv from" : "send to", peer, type_name(t.type), t.count,
                     open->moved, open->bytes);
}

}  // namespace unisono
