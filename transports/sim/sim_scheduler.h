// SimScheduler: who runs, and what time it is, in a simulated world.
//
// Actors are real threads of which one at a time holds the token. Nothing but a blocked actor gives
// it up; when every actor is blocked, virtual time moves to the next event or deadline. Choices
// hash (seed, time, actor), never arrival.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <vector>

#include "base/env.h"
#include "transports/sim/sim_options.h"

namespace unisono {

class SimScheduler;
struct SimSignal;

// A thread of the world. All fields are guarded by SimScheduler::mutex.
struct SimActor {
  enum class State {
    kOut,   // not of the world now: its ranks are another thread's
    kFree,  // in a call, before the world has started: runs without the token until it would wait
    kRunnable,  // wants the token
    kRunning,   // holds it, also between calls
    kBlocked,
  };
  int32_t rank = -1;    // identity, with `serial`: the first rank it drove, or its maker's
  uint32_t serial = 0;  // helpers and later threads of that rank count from 1
  bool helper = false;  // made by start_thread
  State state = State::kOut;
  int owned = 0;   // ranks that this thread drives
  int depth = 0;   // enters less leaves
  int spins = 0;   // waits that had nothing to wait for, since it last blocked
  int streak = 0;  // enters since it last blocked
  uint64_t turns = 0;
  int64_t deadline_ns = kNeverNs;
  std::vector<SimSignal*> signals;  // it is blocked on
  SimActor* joiner = nullptr;       // blocked until this one has ended
  bool ended = false;
  bool may_dispatch = false;  // parked where events may be run
  std::condition_variable wake;
};

// One reason to wake: the state behind a Waiter. Guarded by SimScheduler::mutex.
struct SimSignal {
  bool notified = false;
  std::vector<SimActor*> sleepers;
};

class SimScheduler : public std::enable_shared_from_this<SimScheduler> {
 public:
  using Lock = std::unique_lock<std::mutex>;
  // Runs with the lock held; may let go of it and take it again.
  using EventFn = std::function<void(Lock& lock)>;
  enum class EventKind { kMessage, kTimer };

  SimScheduler(const SimOptions& options, int32_t ranks);
  SimScheduler(const SimScheduler&) = delete;

  std::mutex mutex;  // guards the world: scheduler, channels, links

  const SimOptions& options() const { return options_; }
  int32_t ranks() const { return static_cast<int32_t>(ranks_.size()); }
  int64_t now_ns() const { return now_ns_.load(std::memory_order_relaxed); }

  // --- Called without the lock.
  void enter(int32_t rank);
  void leave();
  void wait(std::span<SimSignal* const> signals, int64_t deadline_ns);
  void notify(SimSignal& signal);
  // Before an actor touches what others see: takes the token if the world had not started at
  // enter().
  void acquire();
  std::shared_ptr<SimActor> add_helper();  // to be run by run_helper
  void run_helper(const std::shared_ptr<SimActor>& actor, const std::function<void()>& body);
  // Waits, in the world's terms, until the helper has ended; the real thread then ends without
  // waiting for anyone.
  void await_end(SimActor& helper);
  void detach(const std::shared_ptr<SimActor>& actor);  // its thread ends
  void random_bytes(void* bytes, size_t count);

  // --- Called with the lock held.
  void notify_locked(SimSignal& signal);
  // Runs fn at `time_ns` (at once if past). Events of one instant run by (source rank, that rank's
  // own count).
  void add_event(int64_t time_ns, int32_t source, EventKind kind, EventFn fn);
  // A value in [0, 1) from the seed, the rank and how many it has drawn.
  double draw(int32_t rank);
  // The world does not wait for this rank's thread any more, or (back = true) does again.
  void set_absent(int32_t rank, bool absent);
  // After a change from outside: lets a parked actor look whether the world can go on.
  void poke();
  bool deadlocked() const { return deadlocked_; }
  uint64_t trace_hash() const { return trace_hash_; }
  void trace(uint64_t what);
  // Called by whoever finds the deadlock, with the lock held.
  std::function<void()> on_deadlock;

 private:
  struct Rank {
    SimActor* owner = nullptr;
    bool gone = false;     // its thread has ended since the world started
    bool absent = false;   // closed, killed or told so
    uint32_t serials = 0;  // threads named after it
    uint64_t draws = 0, events = 0;
    bool present() const { return owner != nullptr || gone || absent; }
  };
  struct Event {
    EventKind kind;
    EventFn fn;
  };
  using EventKey = std::tuple<int64_t, int32_t, uint64_t>;

  std::shared_ptr<SimActor> current();  // this thread's actor, or null
  std::shared_ptr<SimActor> new_actor(int32_t rank, bool helper);
  Rank& counters(int32_t rank);
  void bind(SimActor& actor, int32_t rank);
  void unbind(SimActor& actor);
  bool principal(const SimActor& actor) const;
  bool any(SimActor::State state) const;
  bool principal_waits() const;
  bool unowned() const;
  bool may_advance();
  void start_if_all_present();
  void reset();
  void reset_if_empty();
  void take_over_from_sole_driver(const SimActor& actor);
  void block_and_park(Lock& lock, SimActor& actor, std::span<SimSignal* const> signals,
                      int64_t deadline_ns);
  void park(Lock& lock, SimActor& actor, bool may_dispatch);
  void schedule(Lock& lock, bool may_dispatch);
  bool grant();
  bool advance(Lock& lock);
  bool may_jump();
  bool report_deadlock();
  void unstick();
  void mark_missing_as_gone();

  const SimOptions options_;
  std::atomic<int64_t> now_ns_{1000000000};
  bool started_ = false;
  bool dispatching_ = false;
  bool deadlocked_ = false;
  bool foreign_seen_ = false;  // threads from outside the world take part
  bool jump_allowed_ = false;
  bool quiet_wanted_ = false;
  bool helpers_alone_ = false;
  SimActor* holder_ = nullptr;
  std::vector<std::shared_ptr<SimActor>> actors_;
  std::vector<Rank> ranks_;
  Rank outside_;  // counters of what belongs to no rank
  std::map<EventKey, Event> events_;
  int64_t messages_in_flight_ = 0;
  uint64_t ticks_ = 0;  // grants and events: whether the world moves
  uint64_t trace_hash_ = 0;
};

}  // namespace unisono
