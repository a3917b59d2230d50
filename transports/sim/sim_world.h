// SimWorld: ranks of one process in virtual time. Tests reach it through SimWorld::from.
#pragma once

#include <memory>
#include <vector>

#include "transports/registry.h"
#include "transports/sim/sim_core.h"
#include "transports/sim/sim_env.h"

namespace unisono {

class SimWorld final : public World {
 public:
  static Result<std::shared_ptr<SimWorld>> create(std::string_view options, int32_t ranks);
  // Null if `world` is not a simulated one.
  static SimWorld* from(World& world) { return dynamic_cast<SimWorld*>(&world); }

  SimWorld(std::shared_ptr<SimCore> core, std::vector<int32_t> members);

  Env& env() override { return env_; }
  std::unique_ptr<MessageLinks> make_links(int32_t rank) override;
  std::shared_ptr<World> subworld(std::span<const int32_t> members) override;

  // --- For tests. Any thread, unless said; ranks are this (sub)world's.
  int32_t ranks() const { return static_cast<int32_t>(members_.size()); }
  // The calling thread, one of the world's, lets others run for so much virtual time.
  void sleep_ns(int64_t duration_ns);
  // Takes the turn (enter() alone does not, before all ranks' threads have come).
  void take_turn() { core_->scheduler->acquire(); }
  // The rank dies: its own operations fail at once, its peers learn of it after the latency.
  void kill(int32_t rank);
  // The world does not wait for a thread of this rank before it lets time pass.
  void mark_absent(int32_t rank);
  // No event was left and every rank waited for ever, at least once. Everybody was woken,
  // transports report it.
  bool deadlocked() const;
  // Of every turn and event since the start: equal for equal runs.
  uint64_t trace_hash() const;

  // --- For the transport and the links.
  const std::shared_ptr<SimCore>& core() const { return core_; }
  int32_t world_rank(int32_t rank) const { return members_[static_cast<size_t>(rank)]; }

 private:
  const std::shared_ptr<SimCore> core_;
  const std::vector<int32_t> members_;  // world ranks
  SimEnv env_;
};

}  // namespace unisono
