#include "comm/driver.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "comm/communicator.h"

namespace unisono {
namespace {

// Waited this long: tell control; then again at this interval. Sooner where the deadline is near.
constexpr int64_t kStallNs = 1'000'000'000;
// Whose links end without a word has failed or was aborted: control is about to say how.
constexpr int64_t kGraceNs = 500'000'000;
constexpr int kTurnsBetweenClockReads = 16;
// A turn that asks the kernel about sockets takes as long as so many that look at memory.
constexpr int kTurnsOfASocketPoll = 16;
constexpr int kTurnsBetweenLooks = 64;
// Turns that yield take as long as others like: on a busy machine few fit into this time without
// anything moving, after which it is better to sleep than to be late for a deadline.
constexpr int64_t kPatienceNs = 5'000'000;
// With sockets: a little longer than two sleepers take to wake each other, so that they find back
// to spinning. More is lost where the core is shared with somebody whom nobody here knows of
// (another job, a rank in a container of its own).
constexpr int64_t kSocketPatienceNs = 30'000;

std::string where(const Operation& operation, const StallReport& stall) {
  const Communicator& comm = operation.communicator();
  std::string text = operation.describe();
  if (stall.step >= 0) text += fmt::format(", lane {} step {}", stall.lane, stall.step);
  if (stall.peer >= 0) text += fmt::format(", waiting for {}", comm.peer_name(stall.peer));
  return text;
}

std::string rank_list(const std::vector<int32_t>& ranks) {
  return ranks.empty() ? "none" : fmt::format("{}", fmt::join(ranks, ", "));
}

// One operation in the hands of a Drive.
struct Item {
  Operation* operation = nullptr;
  bool started = false, done = false;
  bool advanced = false;         // its work is done; what it sent is on the way out
  int64_t waiting_since_ns = 0;  // 0: the clock has not been read since something moved
  int64_t deadline_ns = 0;       // 0: not yet known; set at the first clock reading
  int64_t next_stall_ns = 0;
  int32_t gone = -1;  // a peer seen to have left: perhaps not before sending all that is needed
  int64_t gone_until_ns = 0;  // what it has to say why
};

class Drive {
 public:
  explicit Drive(std::span<Operation* const> operations) {
    items_.reserve(operations.size());
    for (Operation* operation : operations) items_.push_back({operation});
    env_ = &operations.front()->communicator().env();
    for (Operation* operation : operations) {
      if (operation->communicator().agreement().cheap_poll) continue;
      turn_length_ = kTurnsOfASocketPoll;
      patience_ns_ = kSocketPatienceNs;
    }
  }

  // The only operation has its turn and has been started; `advanced`: and is done but for what is
  // on the way out.
  void set_started(bool advanced) {
    items_.front().started = true;
    items_.front().advanced = advanced;
  }

  Status run() {
    for (int idle = 0; left() != 0;) {
      if (turn()) {
        idle = 0;
        continue;
      }
      if (left() == 0) break;
      if (poll()) {
        idle = 0;
        continue;
      }
      idle += turn_length_;
      bool patient = true;
      if (idle % kTurnsBetweenClockReads == 0) patient = glance(idle);
      if (!patient || !env_->relax(idle)) sleep();
    }
    return first_error_;
  }

 private:
  size_t left() const { return items_.size() - finished_; }

  void finish(Item& item, const Status& status) {
    item.done = true;
    finished_++;
    if (!status.ok() && first_error_.ok()) first_error_ = status;
    if (item.started) item.operation->communicator().complete_turn();
  }

  // A failure of the communicator, in this operation's words.
  void finish_failed(Item& item) {
    Communicator& comm = item.operation->communicator();
    const Status status = comm.status();
    item.operation->abandon();
    // Its own failure (a deadline) has the words already.
    const bool named = status.message().starts_with(item.operation->describe());
    finish(item, named ? status : status.annotate(where(*item.operation, item.operation->stall())));
  }

  bool turn() {
    bool moved = false;
    for (Item& item : items_) {
      if (item.done) continue;
      Communicator& comm = item.operation->communicator();
      if (!item.started) {
        if (!comm.has_turn(item.operation->ticket)) continue;
        item.started = moved = true;
        if (comm.failed()) {
          finish(item, comm.status().annotate("the communicator has failed"));
          continue;
        }
        if (Status status = item.operation->start(); !status.ok()) {
          // The other ranks wait for this one: it cannot just stay away.
          comm.fail(status);
          finish(item, status);
          continue;
        }
      }
      const Advance advance = item.advanced ? Advance::kDone : item.operation->advance();
      if (advance == Advance::kDone && comm.flushed()) {
        finish(item, {});
        moved = true;
      } else if (advance == Advance::kDone && !item.advanced) {
        item.advanced = moved = true;
      } else if (advance == Advance::kMoved) {
        item.waiting_since_ns = 0;
        item.gone = -1;
        moved = true;
      } else if (comm.failed()) {
        finish_failed(item);
        moved = true;
      }
    }
    return moved;
  }

  bool poll() {
    bool moved = false;
    for (Item& item : items_) {
      if (item.done || !item.started) continue;
      Communicator& comm = item.operation->communicator();
      moved = comm.poll() || moved;
      int32_t peer = -1;
      if (__builtin_expect(comm.take_foreign(&peer), 0)) publish(item, true, peer);
    }
    return moved;
  }

  void publish(Item& item, bool suspicious, int32_t peer) {
    Communicator& comm = item.operation->communicator();
    StallReport report = item.operation->stall();
    report.suspicious = suspicious;
    if (peer >= 0) report.peer = peer;
    report.last = comm.sequence();
    comm.tally_pairs(&report);
    item.operation->explain(&report);
    if (comm.control() != nullptr) comm.control()->publish_stall(report);
  }

  // Reads the clock cheaply and does what is due. False: nothing has moved for too long.
  bool glance(int idle) {
    const int64_t now = env_->now_ns();
    if (idle == kTurnsBetweenClockReads) idle_since_ns_ = now;
    if (now >= next_due_ns_ || idle % kTurnsBetweenLooks == 0) (void)look(now);
    return now - idle_since_ns_ < patience_ns_;
  }

  // Keeps deadlines, tells of stalls, notices who has left. False: look once more before sleeping.
  bool look(int64_t now) {
    bool settled = true;
    next_due_ns_ = kNeverNs;
    for (Item& item : items_) {
      if (item.done || !item.started) continue;
      Communicator& comm = item.operation->communicator();
      if (item.deadline_ns == 0) {
        const int64_t timeout_ms = item.operation->timeout_ms;
        item.deadline_ns =
            timeout_ms > (kNeverNs - now) / 1'000'000 ? kNeverNs : now + timeout_ms * 1'000'000;
      }
      if (item.waiting_since_ns == 0) {
        item.waiting_since_ns = now;
        item.next_stall_ns = now + std::min(kStallNs, (item.deadline_ns - now) / 2);
      }
      const StallReport stall = item.operation->stall();
      if (const Communicator::Gone gone = comm.gone_for(stall); gone.rank >= 0) {
        settled = miss(item, gone, stall, now) && settled;
      } else if (now >= item.deadline_ns) {
        expire(comm, item, stall);
      } else if (now >= item.next_stall_ns) {
        item.next_stall_ns = now + kStallNs;
        publish(item, false, -1);
      }
      next_due_ns_ = std::min({next_due_ns_, item.deadline_ns, item.next_stall_ns});
    }
    return settled;
  }

  // False: look once more before sleeping.
  bool miss(Item& item, const Communicator::Gone& gone, const StallReport& stall, int64_t now) {
    // What it sent before it left is there by now: only a second look in vain is final.
    if (item.gone != gone.rank) {
      item.gone = gone.rank;
      item.gone_until_ns = now + kGraceNs;
    } else if (gone.told || now >= item.gone_until_ns) {
      Communicator& comm = item.operation->communicator();
      comm.fail(error(Code::kRemoteError, "{}: {} has left the communicator",
                      where(*item.operation, stall), comm.peer_name(gone.rank)));
    }
    item.next_stall_ns = std::min(item.next_stall_ns, item.gone_until_ns);
    return !gone.told;
  }

  void expire(Communicator& comm, const Item& item, const StallReport& stall) {
    std::string arrived;
    if (comm.control() != nullptr && stall.call.sequence != 0) {
      arrived = fmt::format("; other ranks known to wait in it: {}",
                            rank_list(comm.control()->arrived(stall.call.sequence)));
    }
    comm.fail(error(Code::kTimeout, "{} timed out after {} ms{}", where(*item.operation, stall),
                    item.operation->timeout_ms, arrived));
  }

  void sleep() {
    if (!look(env_->now_ns())) return;
    std::vector<Waiter*> waiters;
    int64_t until = kNeverNs;
    bool ready = false;
    for (Item& item : items_) {
      if (item.done) continue;
      Communicator& comm = item.operation->communicator();
      if (item.started) {
        waiters.push_back(&comm.waiter());
        until = std::min({until, item.deadline_ns, item.next_stall_ns});
        ready = comm.arm() || ready;
      } else {
        if (!turn_waiter_) turn_waiter_ = env_->make_waiter();
        comm.add_turn_waiter(turn_waiter_.get());
        ready = ready || comm.has_turn(item.operation->ticket);
      }
    }
    if (turn_waiter_) waiters.push_back(turn_waiter_.get());
    if (!ready) env_->wait(waiters, until);
    for (Item& item : items_) {
      if (item.done) continue;
      Communicator& comm = item.operation->communicator();
      if (item.started) {
        comm.disarm();
      } else {
        comm.remove_turn_waiter(turn_waiter_.get());
      }
    }
  }

  Env* env_ = nullptr;
  std::vector<Item> items_;
  size_t finished_ = 0;
  Status first_error_;
  int turn_length_ = 1;  // in turns that look at memory
  int64_t patience_ns_ = kPatienceNs;
  int64_t idle_since_ns_ = 0;
  int64_t next_due_ns_ = 0;              // the next deadline or stall; 0: look at the next occasion
  std::unique_ptr<Waiter> turn_waiter_;  // for operations whose turn has not come
};

// This thread drives these ranks: a simulated world must know of each before it lets time pass.
class Entered {
 public:
  explicit Entered(std::span<Operation* const> operations) {
    for (Operation* operation : operations) {
      if (operation->communicator().world() != nullptr)
        comms_.push_back(&operation->communicator());
    }
    std::sort(comms_.begin(), comms_.end(), [](const Communicator* a, const Communicator* b) {
      return std::tuple(a->rank(), a) < std::tuple(b->rank(), b);  // by rank: it replays exactly
    });
    comms_.erase(std::unique(comms_.begin(), comms_.end()), comms_.end());
    for (Communicator* comm : comms_) comm->env().enter(comm->rank());
  }
  ~Entered() {
    for (Communicator* comm : comms_) comm->env().leave(comm->rank());
  }
  Entered(const Entered&) = delete;

 private:
  std::vector<Communicator*> comms_;
};

}  // namespace

Status drive(std::span<Operation* const> operations) {
  if (operations.empty()) return {};
  const Entered entered(operations);
  return Drive(operations).run();
}

Status drive_one(Operation& operation) {
  Communicator& comm = operation.communicator();
  Operation* const list[] = {&operation};
  if (!comm.has_turn(operation.ticket) || comm.failed()) return Drive(list).run();
  if (Status status = operation.start(); !status.ok()) {
    comm.fail(status);
    comm.complete_turn();
    return status;
  }
  return drive_started(operation);
}

Status drive_started(Operation& operation) {
  Communicator& comm = operation.communicator();
  // Without a look at the clock or at failures: so only while turns are short.
  const int spin_turns = comm.agreement().oversubscribed ? 8
                         : comm.agreement().cheap_poll   ? 256
                                                         : 256 / kTurnsOfASocketPoll;
  // Where peers are a load away, polling transports that carry nothing would only delay the load.
  const int poll_mask = comm.agreement().same_memory ? 15 : 0;
  bool advanced = false;
  for (int idle = 0; idle < spin_turns;) {
    const Advance advance = operation.advance();
    if (advance == Advance::kDone) {
      advanced = !comm.agreement().same_memory && !comm.flushed();
      if (advanced) break;
      comm.complete_own_turn();
      return {};
    }
    if (advance == Advance::kMoved) {
      idle = 0;
      continue;
    }
    idle++;
    if ((idle & poll_mask) == 0 && comm.poll()) idle = 0;
    if (!comm.env().relax(idle)) break;
  }
  Operation* const list[] = {&operation};
  Drive slow(list);
  slow.set_started(advanced);
  return slow.run();
}

void wait_for_turn(Communicator& communicator, uint64_t ticket) {
  if (communicator.has_turn(ticket)) return;
  const std::unique_ptr<Waiter> waiter = communicator.env().make_waiter();
  communicator.add_turn_waiter(waiter.get());
  Waiter* const list[] = {waiter.get()};
  while (!communicator.has_turn(ticket)) communicator.env().wait(list, kNeverNs);
  communicator.remove_turn_waiter(waiter.get());
}

}  // namespace unisono
