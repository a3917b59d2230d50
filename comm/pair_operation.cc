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
      for (int32_t r = 0; r < comm.ranks(); r++) {
        if (r != comm.rank()) receives.push_back(r);
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
    receivers_.push_back({rank, channel});
  }
  return {};
}

Status PairOperation::start() {
  TRY(open_peers());
  for (State& state : transfers_) {
    const Transfer& t = state.transfer;
    state.bytes = t.count * type_bytes(t.type);
    if (!t.receive) {
      state.fingerprint = pair_fingerprint(communicator().next_pair_send(t.peer), t.type, t.count);
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
    pending_.push_back({peer.channel.send, peer.channel.send->accepted(), data, data + bytes});
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
  if (index < 0) return false;  // of a later operation
  State& state = transfers_[static_cast<size_t>(index)];
  const Transfer& t = state.transfer;
  state.fingerprint = pair_fingerprint(comm.peek_pair_recv(peer.rank), t.type, t.count);
  if (message.header.fingerprint != state.fingerprint || message.header.bytes != slice(state)) {
    comm.fail(error(Code::kMismatch, "{} sent {}, {} receives {}", comm.peer_name(peer.rank),
                    describe_fingerprint(message.header.fingerprint), comm.peer_name(comm.rank()),
                    describe_fingerprint(state.fingerprint)));
    return false;
  }
  comm.next_pair_recv(peer.rank);
  state.matched = true;
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
    std::erase_if(pending_, [](const PendingSend& p) { return p.end->completed() >= p.ordinal; });
    if (pending_.empty()) return Advance::kDone;
  }
  return moved ? Advance::kMoved : Advance::kIdle;
}

void PairOperation::abandon() {
  for (Peer& peer : receivers_) {
    if (peer.hinted != nullptr) peer.channel.recv->cancel_post();
  }
}

StallReport PairOperation::stall() const {
  StallReport report;
  for (const State& state : transfers_) {
    if (state.done) continue;
    report.peer = state.transfer.peer;
    break;
  }
  return report;
}

std::string PairOperation::describe() const {
  const auto open = std::find_if(transfers_.begin(), transfers_.end(),
                                 [](const State& state) { return !state.done; });
  if (open == transfers_.end()) return "send/recv";
  const Transfer& t = open->transfer;
  const std::string peer = communicator().peer_name(t.peer);
  return fmt::format("{} {} ({}, count {}, {} of {} bytes moved)",
                     t.receive ? "recv from" : "send to", peer, type_name(t.type), t.count,
                     open->moved, open->bytes);
}

}  // namespace unisono
