#include "transports/sim/sim_scheduler.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/log.h"

namespace unisono {
namespace {

using State = SimActor::State;

// Real time without anything happening before virtual time jumps, where threads from outside the
// world take part: they are invisible, so that all that can be done is to let them come. Longer
// than a busy machine keeps a thread waiting for a core: with 20 ms a deadline came too early once.
constexpr int64_t kQuietMs = 100;
constexpr int kEntersBeforeYield = 256;
constexpr int kSpinsBeforeYield = 8;
constexpr int64_t kYieldNs = 1000;

// The actors that this thread is, one a world; leaves the worlds when the thread ends.
struct ThreadActors {
  struct Entry {
    std::weak_ptr<SimScheduler> scheduler;
    const SimScheduler* key;
    std::shared_ptr<SimActor> actor;
  };
  std::vector<Entry> entries;

  ~ThreadActors() {
    for (Entry& entry : entries) {
      if (auto scheduler = entry.scheduler.lock()) scheduler->detach(entry.actor);
    }
  }
  void add(std::weak_ptr<SimScheduler> scheduler, const SimScheduler* key,
           std::shared_ptr<SimActor> actor) {
    std::erase_if(entries, [](const Entry& entry) { return entry.scheduler.expired(); });
    entries.push_back({std::move(scheduler), key, std::move(actor)});
  }
  std::shared_ptr<SimActor> find(const SimScheduler* key) const {
    for (const Entry& entry : entries) {
      if (entry.key == key && !entry.scheduler.expired()) return entry.actor;
    }
    return nullptr;
  }
};
thread_local ThreadActors t_actors;

}  // namespace

SimScheduler::SimScheduler(const SimOptions& options, int32_t ranks)
    : options_(options), ranks_(static_cast<size_t>(ranks)) {}

std::shared_ptr<SimActor> SimScheduler::current() {
  return t_actors.find(this);
}

SimScheduler::Rank& SimScheduler::counters(int32_t rank) {
  return rank >= 0 && rank < ranks() ? ranks_[static_cast<size_t>(rank)] : outside_;
}

std::shared_ptr<SimActor> SimScheduler::new_actor(int32_t rank, bool helper) {
  auto actor = std::make_shared<SimActor>();
  actor->rank = rank;
  actor->serial = counters(rank).serials++;
  actor->helper = helper;
  actors_.push_back(actor);
  return actor;
}

// --- Presence

void SimScheduler::bind(SimActor& actor, int32_t rank) {
  if (rank < 0 || rank >= ranks()) return;
  Rank& state = ranks_[static_cast<size_t>(rank)];
  SimActor* before = state.owner;
  if (before == nullptr || !actor.helper) {
    state.owner = &actor;
    ++actor.owned;
    // A thread that has handed over its last rank, and is not in a call, is of the world no more.
    if (before != nullptr && --before->owned == 0 && before->depth == 0 &&
        before->state == State::kFree) {
      before->state = State::kOut;
    }
  }
  state.gone = false;
}

void SimScheduler::unbind(SimActor& actor) {
  if (actor.owned == 0) return;
  actor.owned = 0;
  for (Rank& rank : ranks_) {
    if (rank.owner != &actor) continue;
    rank.owner = nullptr;
    rank.gone = started_;
  }
}

void SimScheduler::start_if_all_present() {
  if (started_) return;
  bool owned = false;
  for (const Rank& rank : ranks_) {
    if (!rank.present()) return;
    owned = owned || rank.owner != nullptr;
  }
  started_ = owned;
}

// When the last thread that drives ranks has gone, the next ones meet anew, as at first.
void SimScheduler::reset_if_empty() {
  for (const Rank& rank : ranks_) {
    if (rank.owner != nullptr && (!rank.owner->helper || rank.owner->depth > 0)) return;
  }
  reset();
}

void SimScheduler::reset() {
  started_ = false;
  foreign_seen_ = false;
  for (Rank& rank : ranks_) {
    if (rank.owner != nullptr) rank.owner->owned = 0;
    rank.owner = nullptr;
    rank.gone = false;
  }
}

// A thread that has driven every rank alone and is now outside of any call may have made threads to
// drive them, and join them for real: it does not keep its turn from these.
void SimScheduler::take_over_from_sole_driver(const SimActor& actor) {
  if (holder_ == nullptr || holder_ == &actor || holder_->helper || holder_->depth > 0 ||
      actor.helper || actor.owned > 0) {
    return;
  }
  for (const Rank& rank : ranks_) {
    if (rank.owner != holder_ && !rank.absent) return;
  }
  holder_->state = State::kOut;
  holder_ = nullptr;
  reset();
}

void SimScheduler::set_absent(int32_t rank, bool absent) {
  counters(rank).absent = absent;
  if (!absent) return;
  start_if_all_present();
  poke();
}

// Threads that time passes for: not helpers that sleep until someone gives them work.
bool SimScheduler::principal(const SimActor& actor) const {
  return !actor.helper || actor.depth > 0;
}

bool SimScheduler::any(State state) const {
  return std::any_of(actors_.begin(), actors_.end(),
                     [state](const auto& actor) { return actor->state == state; });
}

bool SimScheduler::principal_waits() const {
  return std::any_of(actors_.begin(), actors_.end(), [this](const auto& actor) {
    return principal(*actor) &&
           (actor->state == State::kBlocked || actor->state == State::kRunnable);
  });
}

// --- Entering, leaving, ending

void SimScheduler::enter(int32_t rank) {
  Lock lock(mutex);
  std::shared_ptr<SimActor> actor = current();
  if (actor == nullptr) {
    actor = new_actor(rank, false);
    t_actors.add(weak_from_this(), this, actor);
  }
  ++actor->depth;
  ++ticks_;
  helpers_alone_ = false;
  take_over_from_sole_driver(*actor);
  bind(*actor, rank);
  if (holder_ == actor.get()) {
    // A loop that polls (uniStreamQuery) never blocks: now and then it counts as a short sleep.
    if (++actor->streak >= kEntersBeforeYield) {
      block_and_park(lock, *actor, {}, now_ns() + kYieldNs);
    }
    start_if_all_present();
    return;
  }
  start_if_all_present();
  if (!started_) {
    // Not yet the time to wait for the others: this thread may be about to enter for other ranks,
    // too.
    actor->state = State::kFree;
    return;
  }
  actor->state = State::kRunnable;
  park(lock, *actor, false);
}

void SimScheduler::leave() {
  Lock lock(mutex);
  std::shared_ptr<SimActor> actor = current();
  if (actor == nullptr || actor->depth == 0) return;
  // Before the start the thread goes on as it is: it may be about to enter for other ranks, too.
  if (--actor->depth > 0 || actor->state != State::kFree || !started_) return;
  actor->state = State::kRunnable;
  park(lock, *actor, false);
}

void SimScheduler::acquire() {
  Lock lock(mutex);
  std::shared_ptr<SimActor> actor = current();
  if (actor == nullptr || actor->state != State::kFree) return;
  actor->state = State::kRunnable;
  park(lock, *actor, false);
}

void SimScheduler::detach(const std::shared_ptr<SimActor>& actor) {
  Lock lock(mutex);
  unbind(*actor);
  std::erase(actors_, actor);
  actor->state = State::kOut;
  actor->ended = true;
  if (holder_ == actor.get()) holder_ = nullptr;
  if (actor->joiner != nullptr) {
    if (actor->joiner->state == State::kBlocked) actor->joiner->state = State::kRunnable;
    actor->joiner->wake.notify_one();
  }
  ++ticks_;
  reset_if_empty();
  poke();
}

std::shared_ptr<SimActor> SimScheduler::add_helper() {
  Lock lock(mutex);
  std::shared_ptr<SimActor> maker = current();
  std::shared_ptr<SimActor> actor = new_actor(maker == nullptr ? -1 : maker->rank, true);
  actor->state = State::kRunnable;
  return actor;
}

void SimScheduler::run_helper(const std::shared_ptr<SimActor>& actor,
                              const std::function<void()>& body) {
  t_actors.add(weak_from_this(), this, actor);
  {
    Lock lock(mutex);
    park(lock, *actor, false);
  }
  body();
}

void SimScheduler::await_end(SimActor& helper) {
  Lock lock(mutex);
  std::shared_ptr<SimActor> actor = current();
  if (helper.ended || actor == nullptr || actor->state == State::kOut) return;
  helper.joiner = actor.get();
  if (actor->state == State::kFree && !started_) {
    // Helpers run before the start as well; meanwhile the start does not wait for this thread.
    actor->state = State::kOut;
    while (!helper.ended) actor->wake.wait(lock);
    actor->state = State::kFree;
  } else {
    if (actor->state == State::kFree) {
      actor->state = State::kRunnable;
      park(lock, *actor, false);
    }
    if (!helper.ended) block_and_park(lock, *actor, {}, kNeverNs);
  }
  helper.joiner = nullptr;
}

// --- Waiting

void SimScheduler::wait(std::span<SimSignal* const> signals, int64_t deadline_ns) {
  Lock lock(mutex);
  std::shared_ptr<SimActor> actor = current();
  if (actor != nullptr && actor->state == State::kFree) {
    bool notified = deadline_ns <= now_ns();
    for (SimSignal* signal : signals) notified |= std::exchange(signal->notified, false);
    if (notified && ++actor->spins <= kSpinsBeforeYield) return;
  }
  const bool passer_by = actor == nullptr || actor->state == State::kOut;
  if (actor == nullptr) actor = new_actor(-1, false);
  block_and_park(lock, *actor, signals, deadline_ns);
  if (!passer_by) return;
  // A thread that never entered is of the world only while it waits.
  actor->state = State::kOut;
  holder_ = nullptr;
  if (current() == nullptr) std::erase(actors_, actor);
  poke();
}

void SimScheduler::block_and_park(Lock& lock, SimActor& actor, std::span<SimSignal* const> signals,
                                  int64_t deadline_ns) {
  bool ready = deadline_ns <= now_ns();
  for (SimSignal* signal : signals) {
    ready |= signal->notified;
    signal->sleepers.push_back(&actor);
  }
  actor.signals.assign(signals.begin(), signals.end());
  actor.deadline_ns = deadline_ns;
  actor.streak = 0;
  // Who polls by waits that end at once would stop the clock: now and then such a wait is a short
  // sleep.
  const bool yield = ready && ++actor.spins > kSpinsBeforeYield;
  if (yield) actor.deadline_ns = now_ns() + kYieldNs;
  if (yield || !ready) actor.spins = 0;
  actor.state = ready && !yield ? State::kRunnable : State::kBlocked;
  if (holder_ == &actor) holder_ = nullptr;
  park(lock, actor, true);
  actor.signals.clear();
  actor.deadline_ns = kNeverNs;
  for (SimSignal* signal : signals) {
    signal->notified = false;
    std::erase(signal->sleepers, &actor);
  }
}

// Until this actor holds the token.
void SimScheduler::park(Lock& lock, SimActor& actor, bool may_dispatch) {
  actor.may_dispatch = may_dispatch;
  for (;;) {
    schedule(lock, may_dispatch);
    if (holder_ == &actor) break;
    const uint64_t ticks = ticks_;
    const auto patience =
        std::chrono::milliseconds(quiet_wanted_ ? kQuietMs : options_.patience_ms);
    if (actor.wake.wait_for(lock, patience) == std::cv_status::timeout && ticks == ticks_ &&
        !dispatching_) {
      unstick();
    }
  }
  actor.may_dispatch = false;
  actor.state = State::kRunning;
}

void SimScheduler::notify(SimSignal& signal) {
  Lock lock(mutex);
  if (!dispatching_) {
    std::shared_ptr<SimActor> actor = current();
    const bool inside =
        actor != nullptr && (holder_ == actor.get() || actor->state == State::kFree);
    if (!inside && started_) foreign_seen_ = true;
  }
  notify_locked(signal);
  grant();  // never runs events here: the caller may hold locks that their handlers want
}

void SimScheduler::notify_locked(SimSignal& signal) {
  signal.notified = true;
  for (SimActor* actor : signal.sleepers) {
    if (actor->state == State::kBlocked) actor->state = State::kRunnable;
  }
}

void SimScheduler::poke() {
  if (holder_ != nullptr || dispatching_ || grant()) return;
  for (const auto& actor : actors_) {
    if (actor->state == State::kBlocked && actor->may_dispatch) {
      actor->wake.notify_one();
      return;
    }
  }
}

// --- Choosing

void SimScheduler::schedule(Lock& lock, bool may_dispatch) {
  quiet_wanted_ = false;
  while (holder_ == nullptr && !dispatching_ && !grant()) {
    if (!may_dispatch || !may_advance() || !advance(lock)) return;
  }
}

// Gives the token to one that wants it. Before the start only helpers and passers-by may have it:
// nothing that they do can depend on who has come, as time stands still.
bool SimScheduler::grant() {
  if (holder_ != nullptr || dispatching_ || (started_ && any(State::kFree))) return false;
  SimActor* best = nullptr;
  uint64_t best_hash = 0;
  for (const auto& actor : actors_) {
    if (actor->state != State::kRunnable) continue;
    if (!started_ && actor->owned > 0 && !actor->helper) continue;
    const uint64_t identity = uint64_t(uint32_t(actor->rank)) << 32 | actor->serial;
    const uint64_t hash = sim_hash(options_.seed, uint64_t(now_ns()), identity, actor->turns);
    if (best == nullptr || hash < best_hash) {
      best = actor.get();
      best_hash = hash;
    }
  }
  if (best == nullptr) return false;
  ++best->turns;
  ++ticks_;
  trace(uint64_t(uint32_t(best->rank)) << 32 | best->serial);
  holder_ = best;
  holder_->wake.notify_one();
  return true;
}

void SimScheduler::trace(uint64_t what) {
  if (started_) trace_hash_ = sim_hash(trace_hash_, uint64_t(now_ns()), what);
}

bool SimScheduler::unowned() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.owner == nullptr; });
}

// Before the start time stands still, but for worlds that nobody has entered: there a thread that
// waits without having entered is alone (uniCommInitAll), and helpers have their work from someone
// who only polls.
bool SimScheduler::may_advance() {
  if (any(State::kFree)) return false;
  if (started_) return true;
  if (!unowned()) return false;
  if (principal_waits() || helpers_alone_) return true;
  quiet_wanted_ = messages_in_flight_ > 0;
  return false;
}

// Whether time may move to a mere deadline or timer, while no message is on its way.
bool SimScheduler::may_jump() {
  if (messages_in_flight_ > 0 || std::exchange(jump_allowed_, false)) return true;
  if (!principal_waits()) return false;
  quiet_wanted_ = foreign_seen_;
  return !quiet_wanted_;
}

// Moves time to whatever is next and lets it happen. False: nothing is, or not yet.
bool SimScheduler::advance(Lock& lock) {
  int64_t deadline = kNeverNs;
  for (const auto& actor : actors_) {
    if (actor->state == State::kBlocked) deadline = std::min(deadline, actor->deadline_ns);
  }
  const int64_t event_time = events_.empty() ? kNeverNs : std::get<0>(events_.begin()->first);
  const int64_t next = std::min(deadline, event_time);
  if (next == kNeverNs) {
    if (!principal_waits()) return false;  // idle helpers
    if (foreign_seen_ && !std::exchange(jump_allowed_, false)) {
      quiet_wanted_ = true;
      return false;
    }
    return report_deadlock();
  }
  if (!may_jump()) return false;
  ++ticks_;
  now_ns_.store(std::max(now_ns(), next), std::memory_order_relaxed);
  for (const auto& actor : actors_) {
    if (actor->state == State::kBlocked && actor->deadline_ns <= now_ns()) {
      actor->state = State::kRunnable;
    }
  }
  if (event_time <= now_ns()) {
    auto node = events_.extract(events_.begin());
    if (node.mapped().kind == EventKind::kMessage) --messages_in_flight_;
    trace(uint64_t(std::get<1>(node.key())) ^ (std::get<2>(node.key()) << 20));
    dispatching_ = true;
    node.mapped().fn(lock);
    node.mapped().fn = nullptr;  // what it holds goes while nobody else runs
    dispatching_ = false;
  }
  return true;
}

void SimScheduler::add_event(int64_t time_ns, int32_t source, EventKind kind, EventFn fn) {
  if (kind == EventKind::kMessage) ++messages_in_flight_;
  const int64_t time = std::max(time_ns, now_ns());
  const EventKey key(time, source, counters(source).events++);
  CHECK(events_.emplace(key, Event{kind, std::move(fn)}).second);
  if (holder_ == nullptr && !dispatching_) poke();
}

// --- When nothing goes on

bool SimScheduler::report_deadlock() {
  bool woken = false;
  std::string who;
  for (const auto& actor : actors_) {
    if (actor->state != State::kBlocked) continue;
    const bool joins = actor->signals.empty();
    if (who.size() < 400) {
      who += fmt::format("{}{}{}", who.empty() ? "" : ", ", actor->rank,
                         actor->helper ? " (helper)"
                         : joins       ? " (joining)"
                                       : "");
    }
    if (joins) continue;  // the one it waits for is woken
    actor->state = State::kRunnable;
    woken = true;
    for (SimSignal* signal : actor->signals) signal->notified = true;
  }
  ++ticks_;
  if (!std::exchange(deadlocked_, true)) {
    log_error("simulated deadlock at {} ns: no event is left and every rank waits: {}", now_ns(),
              who);
  }
  if (on_deadlock) on_deadlock();
  return woken;
}

void SimScheduler::mark_missing_as_gone() {
  std::string missing;
  for (int32_t r = 0; r < ranks(); ++r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    if (rank.present()) continue;
    rank.gone = true;
    if (missing.size() < 100) missing += fmt::format(" {}", r);
  }
  log_warn(
      "sim: no thread came for rank{} within {} ms: going on without, so that replays may differ",
      missing, options_.patience_ms);
}

// Called after a time of silence: see SimOptions::patience_ms.
void SimScheduler::unstick() {
  ++ticks_;
  if (!started_) {
    helpers_alone_ = unowned();
    if (helpers_alone_ || !principal_waits()) return;
    mark_missing_as_gone();
    started_ = true;
  } else if (any(State::kFree)) {
    for (const auto& actor : actors_) {
      if (actor->state == State::kFree) actor->state = State::kOut;
    }
    log_warn("sim: a thread neither waits nor leaves: replays may differ");
  } else if (holder_ == nullptr) {
    jump_allowed_ = true;
  } else if (holder_->depth == 0 && !holder_->helper && principal_waits()) {
    log_warn(
        "sim: the thread of rank {} has kept its turn for {} ms outside of any call: taken from "
        "it, so that replays may differ",
        holder_->rank, options_.patience_ms);
    holder_->state = State::kOut;
    unbind(*holder_);
    holder_ = nullptr;
  }
}

double SimScheduler::draw(int32_t rank) {
  const uint64_t hash =
      sim_hash(options_.seed, uint64_t(uint32_t(rank)), counters(rank).draws++, 1);
  return static_cast<double>(hash >> 11) * 0x1p-53;
}

void SimScheduler::random_bytes(void* bytes, size_t count) {
  Lock lock(mutex);
  std::shared_ptr<SimActor> actor = current();
  const int32_t rank = actor == nullptr ? -1 : actor->rank;
  auto* out = static_cast<unsigned char*>(bytes);
  while (count > 0) {
    const uint64_t value =
        sim_hash(options_.seed, uint64_t(uint32_t(rank)), counters(rank).draws++, 2);
    const size_t part = std::min(count, sizeof value);
    std::memcpy(out, &value, part);
    out += part;
    count -= part;
  }
}

}  // namespace unisono
