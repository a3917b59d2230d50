#include "comm/control/control.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/log.h"
#include "comm/control/deadlock.h"
#include "comm/control/messages.h"
#include "comm/control/tree.h"

namespace unisono {
namespace {

using namespace control;

constexpr int64_t kGatherNs = 50'000'000;  // rank 0 asks about reports of this span together
// What the other side of a mismatch has to speak up.
constexpr int64_t kSuspicionNs = 1'500'000'000;
// A rank says every second that it waits: older reports are of waits that have ended.
constexpr int64_t kStallAgeNs = 2'000'000'000;
// After a rank has left: most often all do, and nothing is to be repaired.
constexpr int64_t kRepairNs = 500'000'000;
constexpr int64_t kRepairDialNs = 700'000'000;  // perhaps it has left, too, and we do not know
constexpr int kRepairRounds = 4;                // through all that may be there
constexpr size_t kMaxParked = 1024;             // messages that wait for a link
constexpr size_t kMaxSequences = 64;            // whose arrivals are remembered
constexpr size_t kMaxMailboxBytes = 64u << 20;

// Whether `text` speaks of "rank 1", and not only of "rank 12".
bool names(std::string_view text, std::string_view rank) {
  for (size_t at = text.find(rank); at != std::string_view::npos; at = text.find(rank, at + 1)) {
    const size_t end = at + rank.size();
    if (end == text.size() || text[end] < '0' || text[end] > '9') return true;
  }
  return false;
}

class TreeControl final : public Control {
 public:
  TreeControl(std::unique_ptr<MessageLinks> links, ControlOptions options)
      : links_(std::move(links)), options_(std::move(options)), rank_(options_.rank) {
    neighbours_ = children_of(rank_, options_.ranks);
    if (rank_ != 0) neighbours_.push_back(parent_of(rank_));
  }
  ~TreeControl() override { close(); }

  Status open(int64_t deadline_ns) {
    MessageLinks::Handlers handlers;
    handlers.message = [this](int32_t from, std::string bytes) { on_message(from, bytes); };
    handlers.closed = [this](int32_t peer, bool orderly) { on_closed(peer, orderly); };
    handlers.linked = [this](int32_t peer, bool up) { on_linked(peer, up); };
    const std::vector<int32_t> first = neighbours();  // others may come meanwhile
    return links_->open(first, std::move(handlers), deadline_ns);
  }

  void raise(const Status& status) override {
    if (!status.ok()) fail(status, status.code(), rank_, status.message(), -1);
  }
  Status error() const override {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  void publish_stall(const StallReport& report) override;
  std::vector<int32_t> arrived(uint64_t sequence) const override;
  int32_t left_before(uint64_t sequence) const override;
  bool has_left(int32_t rank) const override;
  void post(int32_t to, const std::string& key, std::string payload) override;
  Result<std::string> await(int32_t from, const std::string& key, int64_t deadline_ns) override;
  void close() override;

 private:
  // Of one sequence, at rank 0: what is to be asked with the next flood.
  struct Pending {
    std::vector<CompareMessage::Side> sides;
    std::set<int32_t> arrived;
  };

  std::string name(int32_t rank) const;
  // `status` is what this rank reports; the rest is what it tells the others.
  void fail(const Status& status, Code code, int32_t origin, const std::string& text, int32_t from);
  void flood(const std::string& bytes, int32_t except);
  void on_message(int32_t from, const std::string& bytes);
  void on_closed(int32_t peer, bool orderly);
  void on_linked(int32_t peer, bool up);
  int32_t parent_now(int32_t rank) const;  // mutex_ held, as hop_to; -1: none, it is the root
  int32_t hop_to(int32_t rank) const;      // the neighbour on the way there; -1: unknown
  bool is_neighbour(int32_t rank) const;   // mutex_ held
  std::vector<int32_t> neighbours() const;
  void repair_soon(int64_t delay_ns);
  void repair();
  void forward_mail(int32_t to, std::string bytes, int32_t from);
  void on_stall(const StallMessage& message);
  void tell_root(const StallMessage& message);
  void ask();  // rank 0
  void look_for_deadlock();
  std::string describe_wait(int32_t rank, const StallReport& report, int32_t for_whom) const;
  void on_compare(const CompareMessage& message, const std::string& bytes);
  void compare(const CompareMessage::Side& side);
  void suspect(const CallRecord& call);
  void on_left(const LeftMessage& message, int32_t from, const std::string& bytes);
  void note_arrived(uint64_t sequence, int32_t rank);
  void deliver(MailMessage message);
  void wake_waiters();  // mutex_ held

  const std::unique_ptr<MessageLinks> links_;
  const ControlOptions options_;
  const int32_t rank_;

  mutable std::mutex mutex_;
  // Those of the tree, later also those who took or were taken for the place of one that left.
  std::vector<int32_t> neighbours_;
  std::set<int32_t> unreachable_;  // died, or cannot be linked to
  int32_t dialling_ = -1;
  bool repairing_ = false;  // repair() is due
  int repair_rounds_ = 0;
  std::vector<std::pair<int32_t, std::string>>
      parked_;  // mail for a rank whose way is not yet back
  Status error_;
  std::string error_bytes_;  // what the others are told of it
  bool closed_ = false;
  std::map<uint64_t, std::set<int32_t>> arrived_;
  std::map<uint64_t, Pending> pending_;
  bool asking_ = false;
  std::map<int32_t, std::pair<StallReport, int64_t>> stalls_;  // rank 0: the last of each, and when
  std::set<std::pair<uint64_t, uint64_t>> suspicions_;  // rank 0: (sequence, fingerprint) asked
  std::map<int32_t, uint64_t> left_;                    // rank: its last collective
  uint64_t suspected_ = UINT64_MAX;                     // sequence for which a timer runs
  std::map<std::pair<int32_t, std::string>, std::deque<std::string>> mailbox_;
  size_t mailbox_bytes_ = 0;
  std::vector<Waiter*> waiters_;
};

std::string TreeControl::name(int32_t rank) const {
  const auto index = static_cast<size_t>(rank);
  if (index < options_.hosts.size() && !options_.hosts[index].empty()) {
    return fmt::format("rank {} ({})", rank, options_.hosts[index]);
  }
  return fmt::format("rank {}", rank);
}

// ---- Errors ----

void TreeControl::fail(const Status& status, Code code, int32_t origin, const std::string& text,
                       int32_t from) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_.ok()) return;
    error_ = status;
    error_bytes_ = encode(ErrorMessage{origin, code, text});
    failed_.store(true, std::memory_order_release);
    wake_waiters();
  }
  log_debug("rank {} fails: {}", rank_, status.message());
  flood(error_bytes_, from);
  if (options_.failed) options_.failed();
}

void TreeControl::flood(const std::string& bytes, int32_t except) {
  for (const int32_t neighbour : neighbours()) {
    if (neighbour != except) links_->send(neighbour, bytes);
  }
}

void TreeControl::on_closed(int32_t peer, bool orderly) {
  bool repair = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || left_.count(peer) != 0 || orderly) return;
    unreachable_.insert(peer);
    repair = !left_.empty();  // else all of its neighbours have seen it, and nobody is cut off
  }
  if (repair) repair_soon(kRepairNs);
  const Status status = unisono::error(Code::kRemoteError, "{} died", name(peer));
  fail(status, status.code(), rank_, status.message(), peer);
}

void TreeControl::on_message(int32_t from, const std::string& bytes) {
  auto message = parse(bytes, options_.ranks);
  if (!message) {
    raise(unisono::error(Code::kRemoteError, "{} sent a malformed control message", name(from)));
  } else if (message->error) {
    const ErrorMessage& record = *message->error;
    const std::string origin = name(record.origin);
    const Status status(record.code, names(record.text, origin)
                                         ? record.text
                                         : fmt::format("{}: {}", origin, record.text));
    fail(status, record.code, record.origin, record.text, from);
  } else if (message->stall) {
    tell_root(*message->stall);
  } else if (message->compare) {
    on_compare(*message->compare, bytes);
  } else if (message->left) {
    on_left(*message->left, from, bytes);
  } else if (message->mail) {
    const int32_t to = message->mail->to;
    if (to == rank_) {
      deliver(std::move(*message->mail));
    } else {
      forward_mail(to, bytes, from);
    }
  }
}

// ---- Stalls ----

void TreeControl::publish_stall(const StallReport& report) {
  const StallMessage message{rank_, report};
  bool start_timer = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || !error_.ok()) return;
    start_timer = report.suspicious && suspected_ != report.call.sequence;
    if (start_timer) suspected_ = report.call.sequence;
  }
  if (start_timer) {
    // The sender of the foreign message may not remember it any more; then this side speaks alone.
    links_->post(
        [this, report] {
          if (failed()) return;
          raise(unisono::error(Code::kMismatch,
                               "{} called {}, but a message of another operation came{}",
                               name(rank_), describe(report.call),
                               report.peer >= 0 ? " from " + name(report.peer) : std::string()));
        },
        kSuspicionNs);
  }
  tell_root(message);
}

void TreeControl::tell_root(const StallMessage& message) {
  int32_t up = -1;
  {
    const std::lock_guard lock(mutex_);
    up = parent_now(rank_);
  }
  if (up < 0) {
    links_->post([this, message] { on_stall(message); }, 0);
  } else {
    links_->send(up, encode(message));
  }
}

// At rank 0, in the links' context.
void TreeControl::on_stall(const StallMessage& message) {
  const CallRecord& call = message.report.call;
  bool start_timer = false;
  {
    const std::lock_guard lock(mutex_);
    if (!message.report.suspicious) {
      stalls_[message.from] = {message.report, options_.env->now_ns()};
    }
    // One answer to a suspicion is enough, however many ranks share it.
    if (suspicions_.size() >= kMaxSequences) suspicions_.clear();
    if (message.report.suspicious && !suspicions_.insert({call.sequence, call.fingerprint}).second)
      return;
    if (call.sequence != 0) {
      if (!pending_.count(call.sequence) && pending_.size() >= kMaxSequences) return;
      Pending& pending = pending_[call.sequence];
      const bool known =
          std::any_of(pending.sides.begin(), pending.sides.end(),
                      [&](const auto& side) { return side.call.fingerprint == call.fingerprint; });
      if (!known && pending.sides.size() < kMaxRecords) {
        pending.sides.push_back({message.from, call});
      }
      if (pending.arrived.size() < kMaxArrived) pending.arrived.insert(message.from);
    }
    start_timer = !asking_ && !message.report.suspicious;
    asking_ |= start_timer;
  }
  if (message.report.suspicious) {
    ask();
  } else if (start_timer) {
    links_->post([this] { ask(); }, kGatherNs);
  }
}

void TreeControl::ask() {
  std::map<uint64_t, Pending> pending;
  {
    const std::lock_guard lock(mutex_);
    pending.swap(pending_);
    asking_ = false;
  }
  for (const auto& [sequence, one] : pending) {
    const CompareMessage message{sequence, one.sides, {one.arrived.begin(), one.arrived.end()}};
    on_compare(message, encode(message));
  }
  look_for_deadlock();
}

// Send/recv on one rank against a collective on another: no message of either meets the other, and
// neither call can end. (Nor can sends and receives that wait for each other.)
void TreeControl::look_for_deadlock() {
  std::map<int32_t, StallReport> stalls;
  {
    const std::lock_guard lock(mutex_);
    const int64_t oldest = options_.env->now_ns() - kStallAgeNs;
    std::erase_if(stalls_, [&](const auto& one) { return one.second.second < oldest; });
    const bool pairs = std::any_of(stalls_.begin(), stalls_.end(),
                                   [](const auto& one) { return !one.second.first.waits.empty(); });
    if (!pairs) return;
    for (const auto& [rank, one] : stalls_) stalls.emplace(rank, one.first);
  }
  const std::vector<int32_t> cycle = find_deadlock(stalls, options_.ranks);
  if (cycle.empty()) return;
  constexpr size_t kMostNamed = 4;
  std::string text;
  for (size_t i = 0; i < std::min(cycle.size(), kMostNamed); ++i) {
    const int32_t next = cycle[(i + 1) % cycle.size()];
    text += fmt::format("{}{}", text.empty() ? "" : "; ",
                        describe_wait(cycle[i], stalls.at(cycle[i]), next));
  }
  if (cycle.size() > kMostNamed) text += fmt::format("; and {} more", cycle.size() - kMostNamed);
  raise(unisono::error(Code::kMismatch, "calls that wait for each other: {}", text));
}

std::string TreeControl::describe_wait(int32_t rank, const StallReport& report,
                                       int32_t for_whom) const {
  if (report.call.sequence != 0) {
    std::string text = fmt::format("{} called {}", name(rank), describe(report.call));
    if (report.step >= 0) text += fmt::format(", lane {} step {}", report.lane, report.step);
    return text + ", waiting for " + name(for_whom);
  }
  for (const PairWait& wait : report.waits) {
    if (wait.peer >= 0 && wait.peer != for_whom) continue;
    return fmt::format(
        "{} called {} {} ({}, count {})", name(rank), wait.receive ? "recv from" : "send to",
        wait.peer < 0 ? "any rank" : name(wait.peer), type_name(wait.type), wait.count);
  }
  return name(rank);
}

void TreeControl::on_compare(const CompareMessage& message, const std::string& bytes) {
  for (const int32_t child : neighbours()) {
    if (child > rank_) links_->send(child, bytes);
  }
  {
    const std::lock_guard lock(mutex_);
    for (const int32_t rank : message.arrived) note_arrived(message.sequence, rank);
  }
  for (const auto& side : message.sides) compare(side);
}

void TreeControl::compare(const CompareMessage::Side& side) {
  if (side.from == rank_ || failed() || !options_.recorder) return;
  const std::optional<CallRecord> mine = options_.recorder(side.call.sequence);
  if (!mine) {
    // This rank has not come so far: perhaps because it is in something else.
    const auto latest = options_.latest ? options_.latest() : std::nullopt;
    if (latest && latest->sequence < side.call.sequence) suspect(*latest);
    return;
  }
  if (mine->fingerprint == side.call.fingerprint) return;
  if (mine->before != side.call.before) {
    // The ways parted at an earlier call: look there.
    if (const auto earlier = options_.recorder(side.call.sequence - 1)) return suspect(*earlier);
  }
  std::string first = fmt::format("{} called {}", name(side.from), describe(side.call));
  std::string second = fmt::format("{} called {}", name(rank_), describe(*mine));
  if (side.from > rank_) first.swap(second);
  raise(unisono::error(Code::kMismatch, "{}, {}", first, second));
}

// Has every rank compare this call of ours with its own.
void TreeControl::suspect(const CallRecord& call) {
  StallMessage message{rank_, {}};
  message.report.call = call;
  message.report.suspicious = true;
  tell_root(message);
}

// ---- Leaving ----

void TreeControl::on_left(const LeftMessage& message, int32_t from, const std::string& bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || !left_.emplace(message.from, message.last).second) return;
    wake_waiters();
  }
  flood(bytes, from);
  repair_soon(kRepairNs);
  if (options_.left) options_.left();
}

int32_t TreeControl::left_before(uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, last] : left_) {
    if (last < sequence) return rank;
  }
  return -1;
}

bool TreeControl::has_left(int32_t rank) const {
  const std::lock_guard lock(mutex_);
  return left_.count(rank) != 0;
}

// ---- A tree whose inner ranks leave ----
//
// Who has lost its parent takes the nearest ancestor that is left, or, where the top has gone, the
// lowest rank. Whatever the two sides missed meanwhile they tell each other then.

int32_t TreeControl::parent_now(int32_t rank) const {
  const auto there = [this](int32_t one) {
    return left_.count(one) == 0 && unreachable_.count(one) == 0;
  };
  for (int32_t up = parent_of(rank); up >= 0; up = parent_of(up)) {
    if (there(up)) return up;
  }
  for (int32_t other = 0; other < rank; ++other) {
    if (there(other)) return other;
  }
  return -1;
}

int32_t TreeControl::hop_to(int32_t rank) const {
  for (int32_t below = rank; below > rank_;) {
    const int32_t up = parent_now(below);
    if (up == rank_) return below;
    below = up;
  }
  return parent_now(rank_);
}

bool TreeControl::is_neighbour(int32_t rank) const {
  return std::find(neighbours_.begin(), neighbours_.end(), rank) != neighbours_.end();
}

std::vector<int32_t> TreeControl::neighbours() const {
  const std::lock_guard lock(mutex_);
  return neighbours_;
}

void TreeControl::repair_soon(int64_t delay_ns) {
  {
    const std::lock_guard lock(mutex_);
    const int32_t up = parent_now(rank_);
    if (closed_ || up < 0 || is_neighbour(up) || std::exchange(repairing_, true)) return;
  }
  links_->post([this] { repair(); }, delay_ns);
}

void TreeControl::repair() {
  int32_t up = -1;
  {
    const std::lock_guard lock(mutex_);
    repairing_ = false;
    up = parent_now(rank_);
    if (closed_ || up < 0 || is_neighbour(up) || dialling_ >= 0) return;
    dialling_ = up;
  }
  links_->connect(up, options_.env->now_ns() + kRepairDialNs);
}

void TreeControl::on_linked(int32_t peer, bool up) {
  std::vector<std::string> news;
  std::vector<std::pair<int32_t, std::string>> parked;
  {
    const std::lock_guard lock(mutex_);
    if (peer == dialling_) dialling_ = -1;
    if (closed_) return;
    if (!up) {
      if (peer < rank_) unreachable_.insert(peer);
      // On a busy machine somebody may have been too slow.
      if (parent_now(rank_) < 0 && repair_rounds_++ < kRepairRounds) unreachable_.clear();
    } else {
      unreachable_.erase(peer);
      if (!is_neighbour(peer)) neighbours_.push_back(peer);
      for (const auto& [rank, last] : left_) news.push_back(encode(LeftMessage{rank, last}));
      if (!error_.ok()) news.push_back(error_bytes_);
      parked.swap(parked_);
    }
  }
  for (const std::string& one : news) links_->send(peer, one);
  for (auto& [to, bytes] : parked) forward_mail(to, std::move(bytes), -1);
  repair_soon(0);
}

void TreeControl::forward_mail(int32_t to, std::string bytes, int32_t from) {
  int32_t next = -1;
  {
    const std::lock_guard lock(mutex_);
    next = hop_to(to);
    if (next == from) return;
    if (!is_neighbour(next)) {
      if (parked_.size() < kMaxParked) parked_.emplace_back(to, std::move(bytes));
      return;
    }
  }
  links_->send(next, std::move(bytes));
}

void TreeControl::note_arrived(uint64_t sequence, int32_t rank) {
  arrived_[sequence].insert(rank);
  if (arrived_.size() > kMaxSequences) arrived_.erase(arrived_.begin());
}

std::vector<int32_t> TreeControl::arrived(uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  const auto found = arrived_.find(sequence);
  if (found == arrived_.end()) return {};
  std::vector<int32_t> ranks(found->second.begin(), found->second.end());
  std::erase(ranks, rank_);
  return ranks;
}

// ---- Mailbox ----

void TreeControl::post(int32_t to, const std::string& key, std::string payload) {
  CHECK(to >= 0 && to < options_.ranks);
  if (key.size() > kMaxKey || payload.size() > kMaxMail) {
    raise(unisono::error(Code::kInternalError, "a control message of {} bytes exceeds {}",
                         payload.size(), kMaxMail));
    return;
  }
  MailMessage message{rank_, to, key, std::move(payload)};
  if (to == rank_) {
    deliver(std::move(message));
  } else {
    forward_mail(to, encode(message), -1);
  }
}

void TreeControl::deliver(MailMessage message) {
  {
    const std::lock_guard lock(mutex_);
    if (mailbox_bytes_ + message.payload.size() <= kMaxMailboxBytes) {
      mailbox_bytes_ += message.payload.size();
      mailbox_[{message.from, message.key}].push_back(std::move(message.payload));
      wake_waiters();
      return;
    }
  }
  raise(unisono::error(Code::kRemoteError, "{} sends faster than this rank reads: {} bytes wait",
                       name(message.from), kMaxMailboxBytes));
}

void TreeControl::wake_waiters() {
  for (Waiter* waiter : waiters_) waiter->notify();
}

Result<std::string> TreeControl::await(int32_t from, const std::string& key, int64_t deadline_ns) {
  const std::unique_ptr<Waiter> waiter = options_.env->make_waiter();
  Waiter* const mine = waiter.get();
  std::unique_lock lock(mutex_);
  waiters_.push_back(mine);
  Result<std::string> result = [&]() -> Result<std::string> {
    for (;;) {
      const auto found = mailbox_.find({from, key});
      if (found != mailbox_.end()) {
        std::string payload = std::move(found->second.front());
        found->second.pop_front();
        if (found->second.empty()) mailbox_.erase(found);
        mailbox_bytes_ -= payload.size();
        return payload;
      }
      if (!error_.ok()) return error_;
      if (closed_) return Status(Code::kAborted, "the communicator was closed");
      if (left_.count(from) != 0) {
        return unisono::error(Code::kRemoteError, "{} has left the communicator", name(from));
      }
      if (options_.env->now_ns() >= deadline_ns) {
        return unisono::error(Code::kTimeout, "nothing came from {} in time (waiting for '{}')",
                              name(from), key);
      }
      lock.unlock();
      options_.env->wait(std::span<Waiter* const>(&mine, 1), deadline_ns);
      lock.lock();
    }
  }();
  std::erase(waiters_, mine);
  return result;
}

void TreeControl::close() {
  // A child's copies of locks are as they happened to be, and the links are its parent's.
  if (net::is_forked_child()) return;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    wake_waiters();
  }
  const auto latest = options_.latest ? options_.latest() : std::nullopt;
  if (!failed()) flood(encode(LeftMessage{rank_, latest ? latest->sequence : 0}), -1);
  links_->close();
}

}  // namespace

std::string describe(const CallRecord& record) {
  std::string text = fmt::format("{} #{} (", collective_name(record.collective), record.sequence);
  if (record.collective != Collective::kBarrier) {
    text += type_name(record.type);
    if (has_op(record.collective)) text += fmt::format(", {}", op_name(record.op));
    text += fmt::format(", count {}", record.count);
    if (record.blocks_hash != 0) {
      text += fmt::format(", block counts {:08x}", static_cast<uint32_t>(record.blocks_hash));
    }
    if (has_root(record.collective)) text += fmt::format(", root {}", record.root);
    text += ", ";
  }
  const std::string_view algorithm(record.algorithm,
                                   strnlen(record.algorithm, sizeof(record.algorithm)));
  text += algorithm.empty() ? "no algorithm yet" : algorithm;
  return text + ")";
}

Result<std::unique_ptr<Control>> Control::create(std::unique_ptr<MessageLinks> links,
                                                 ControlOptions options, int64_t deadline_ns) {
  CHECK(options.env != nullptr && options.rank >= 0 && options.rank < options.ranks);
  auto control = std::make_unique<TreeControl>(std::move(links), std::move(options));
  const Status status = control->open(deadline_ns).annotate("control");
  if (!status.ok()) {
    control->raise(status);  // to those that this rank has links to
    return status;
  }
  return std::unique_ptr<Control>(std::move(control));
}

}  // namespace unisono
