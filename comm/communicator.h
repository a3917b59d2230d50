// Communicator: one rank's membership in a group: its transports, control, plans and turns. Made by
// communicator_builder.h.
//
// Operations run one after the other in the order in which they were issued (tickets), whatever
// their stream; the thread that holds the turn drives the transports, nobody else touches them.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/registry.h"
#include "base/env.h"
#include "base/net/endpoint.h"
#include "comm/bound_plan.h"
#include "comm/call.h"
#include "comm/control/control.h"
#include "comm/geometry.h"
#include "comm/operation.h"
#include "comm/plan_file.h"
#include "comm/planner.h"
#include "comm/recorder.h"
#include "comm/settings.h"
#include "comm/small_program.h"
#include "transports/registry.h"

namespace unisono {

class CollectiveOperation;
class DeviceLink;

class Communicator {
 public:
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int32_t rank() const { return rank_; }
  int32_t ranks() const { return agreement_.ranks; }
  Env& env() const { return *env_; }
  Waiter& waiter() const { return *waiter_; }
  const Settings& settings() const { return settings_; }
  const Agreement& agreement() const { return agreement_; }
  const std::shared_ptr<World>& world() const { return world_; }
  Control* control() const { return control_.get(); }   // null for one rank
  DeviceLink* device() const { return device_.get(); }  // null: buffers are the host's
  int64_t timeout_ms() const { return timeout_ms_.load(std::memory_order_relaxed); }
  void set_timeout_ms(int64_t ms) { timeout_ms_.store(ms, std::memory_order_relaxed); }
  std::string peer_name(int32_t peer) const;  // "rank 3 (host)"; -1: "any rank"

  // ---- Turns. issue(): by the caller's thread, in program order. ----
  uint64_t issue() { return issued_++; }
  uint64_t issued() const { return issued_; }
  bool has_turn(uint64_t ticket) const { return done_.load(std::memory_order_acquire) == ticket; }
  void complete_turn();
  // The same by the thread that issues: cheap while nothing else has been issued.
  void complete_own_turn() {
    const uint64_t mine = done_.load(std::memory_order_relaxed);
    if (__builtin_expect(issued_ == mine + 1, 1)) {
      done_.store(mine + 1, std::memory_order_release);
    } else {
      complete_turn();
    }
  }
  // Notifies `waiter` at each completed turn and at failure. Any thread.
  void add_turn_waiter(Waiter* waiter);
  void remove_turn_waiter(Waiter* waiter);

  // ---- For the holder of the turn ----
  bool poll();  // progress on all transports; true if anything moved. Notices failed links.
  bool arm();   // Transport::arm of all
  bool flushed() const;  // Transport::flushed of all
  void disarm();
  bool peer_left(int32_t peer) const;
  // It has left in order, and there never was a link to it that could bring or take anything.
  bool out_of_reach(int32_t peer) const;
  // Whose leaving keeps an operation that waits like this from completing.
  struct Gone {
    int32_t rank = -1;  // -1: nobody's
    bool told = false;  // it said so; else its links have ended, perhaps after a failure of its own
  };
  Gone gone_for(const StallReport& stall) const;
  struct Prepared {
    const BoundPlan* bound = nullptr;
    uint64_t hash = 0;
    Geometry geometry;
    bool small = false;    // one round of short blocks: the small path
    bool express = false;  // and that program is what the express way runs
    SmallProgram program;  // of the small path
    Call call;             // the key: pointers are not part of it
  };
  Status prepare(const Call& call, const Prepared** prepared);  // valid until the next prepare
  // An earlier all-reduce's of this shape, if the express way can take it (comm/express.h); null:
  // no.
  const Prepared* find_express(uint32_t type, uint32_t op_handle, uint64_t count) const {
    const Prepared& entry = prepared_[slot_of(Collective::kAllReduce, count)];
    const bool found = entry.express && entry.call.count == count &&
                       static_cast<uint32_t>(entry.call.type) == type &&
                       entry.call.op_handle == op_handle;
    return found ? &entry : nullptr;
  }
  void note_algorithm(const BoundPlan& bound) { note_algorithm(bound.algorithm_name); }
  // `name` lives for ever.
  void note_algorithm(const char* name) { last_algorithm_.store(name, std::memory_order_relaxed); }
  uint64_t
  next_sequence() {  // one writer: no locked instruction, which would wait for all earlier stores
    const uint64_t next = sequence_.load(std::memory_order_relaxed) + 1;
    sequence_.store(next, std::memory_order_relaxed);
    return next;
  }
  Recorder& recorder() { return recorder_; }
  // Folds a call into the hash of all calls so far, and gives the hash before it. Fingerprints
  // carry it, so that also a difference that no message of its own call shows is met by the next.
  uint64_t extend_history(uint64_t hash) {
    const uint64_t before = history_;
    history_ = mix(before, hash);
    return before;
  }
  uint64_t history() const { return history_; }
  // The ends of a point-to-point channel with `peer` (own rank: through memory).
  Result<BoundChannel> open_pair_send(int32_t peer);
  Result<BoundChannel> open_pair_recv(int32_t peer);
  uint64_t next_pair_send(int32_t peer) { return ++pair_sent_[static_cast<size_t>(peer)]; }
  uint64_t next_pair_recv(int32_t peer) { return ++pair_received_[static_cast<size_t>(peer)]; }
  uint64_t peek_pair_recv(int32_t peer) const {
    return pair_received_[static_cast<size_t>(peer)] + 1;
  }
  // How far this rank has come with send and recv, for a stall report. Holder of the turn.
  void tally_pairs(StallReport* report) const;
  // A message with another operation's fingerprint: told to control, which finds out who differs.
  void foreign_message(int32_t peer, const MessageHeader& header);
  bool take_foreign(int32_t* peer);  // since the last take
  // 0 unless all of [data, data + bytes) lies in memory registered on this transport.
  uint64_t registration_of(const Transport* transport, const std::byte* data, uint64_t bytes) const;
  // For tests: short calls by the lane executor, too. On by default.
  void use_small_path(bool on) { small_path_ = on; }
  bool small_path() const { return small_path_; }
  CollectiveOperation& blocking_operation() { return *blocking_operation_; }

  // ---- Failure: sticky, spread to all ranks. Any thread. ----
  void fail(const Status& status);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  Status status() const;

  // ---- Outside the data path ----
  Status register_memory(void* pointer, size_t bytes, void** handle);
  Status deregister_memory(void* handle);
  // `scalar` is of `type`, and `value` what it says.
  Result<uint32_t> create_premul_sum(const void* scalar, double value, DataType type);
  Status destroy_op(uint32_t handle);
  // The scalar of a created op, checked against the call's type.
  Status op_scalar(uint32_t handle, DataType type, double* scalar) const;
  size_t memory_bytes() const;
  std::string transports_in_use() const;
  int32_t local_ranks() const { return local_ranks_; }
  const char* last_algorithm() const;
  uint64_t sequence() const { return sequence_.load(std::memory_order_relaxed); }
  // Waits until every issued operation is complete (or failed). The turn is then free.
  void drain();
  // Ends the device's library in order, after drain(); nothing is issued afterwards.
  Status finish_device();
  bool idle() const { return done_.load(std::memory_order_acquire) == issued_; }
  // Says farewell and ends all links in order; nothing is issued afterwards, queries still work.
  void leave();
  // The same, and frees them; the destructor does it too.
  void close();

 private:
  friend class CommunicatorBuilder;
  struct PairLink {  // how this rank reaches another
    Transport* transport = nullptr;
  };
  struct Registration {
    std::byte* begin = nullptr;
    size_t bytes = 0;
    std::vector<std::pair<Transport*, uint64_t>> ids;
  };
  struct CreatedOp {
    double scalar;
    DataType type;
    bool live;
  };
  static constexpr size_t kPreparedSlots = 16;
  static size_t slot_of(Collective collective, uint64_t count) {
    const auto low = static_cast<size_t>(count);
    return (low ^ low >> 4 ^ static_cast<size_t>(collective)) % kPreparedSlots;
  }
  // The plan file's: no algorithm.
  using PlanKey = std::tuple<const Algorithm*, Collective, int32_t>;

  Communicator();
  Result<const BoundPlan*> bind(const Algorithm& algorithm, const Call& call);
  Result<const BoundPlan*> bind_plan_file(const Call& call);
  Result<const BoundPlan*> bind_plan(const PlanKey& key, Plan plan, const char* name,
                                     uint64_t hash);
  Result<BoundChannel> open_channel(const ChannelId& id, uint32_t number);
  void notify_all();

  Settings settings_;
  Agreement agreement_;
  int32_t rank_ = 0, local_ranks_ = 1;
  std::vector<std::string> hosts_;
  std::shared_ptr<World> world_;
  Env* env_ = nullptr;
  std::unique_ptr<Waiter> waiter_;
  std::shared_ptr<net::EventLoop> loop_;
  std::unique_ptr<net::Endpoint> endpoint_;
  std::unique_ptr<Control> control_;
  std::vector<std::unique_ptr<Transport>> transports_;  // self first, then by preference
  Transport* multicast_ = nullptr;                      // joins all ranks, or null
  std::vector<PairLink> links_;                         // by rank

  std::atomic<int64_t> timeout_ms_{kDefaultTimeoutMs};
  uint64_t issued_ = 0;
  std::atomic<uint64_t> done_{0};
  std::atomic<int> turn_waiter_count_{0};
  mutable std::mutex mutex_;  // turn waiters, local status, registrations, created ops
  std::vector<Waiter*> turn_waiters_;
  std::atomic<bool> failed_{false};
  Status local_status_;

  std::atomic<uint64_t> sequence_{0};
  uint64_t history_ = 0;
  std::vector<uint64_t> pair_sent_, pair_received_;
  std::atomic<int64_t> foreign_peer_{-1};
  Recorder recorder_;
  std::shared_ptr<const PlanFile> plan_file_;  // null: none
  std::map<PlanKey, std::unique_ptr<BoundPlan>> plans_;
  std::array<Prepared, kPreparedSlots> prepared_;
  Prepared varying_;  // of the last v-variant: made anew for each
  std::atomic<const char*> last_algorithm_{""};
  std::unique_ptr<CollectiveOperation> blocking_operation_;
  std::vector<Registration> registrations_;
  std::vector<CreatedOp> created_ops_;
  std::unique_ptr<DeviceLink> device_;
  bool small_path_ = true;
  bool closed_ = false;
};

}  // namespace unisono
