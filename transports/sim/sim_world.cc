#include "transports/sim/sim_world.h"

#include <atomic>
#include <numeric>

#include "base/check.h"
#include "transports/sim/sim_links.h"
#include "transports/sim/sim_transport.h"

namespace unisono {
namespace {

using Lock = SimScheduler::Lock;
using EventKind = SimScheduler::EventKind;

constexpr int32_t kMaxSimRanks = 1 << 16;

void report_to_transports(SimCore& core) {
  const Status status =
      error(Code::kInternalError, "simulated deadlock: no event is left and every rank waits");
  for (auto& [id, port] : core.ports) port->fail(*core.scheduler, status);
}

// What the other ranks see of a death, after the latency.
void spread_death(SimCore& core, Lock& lock, int32_t dead) {
  for (auto& [id, port] : core.ports) {
    for (size_t r = 0; r < port->peers.size(); ++r) {
      const SimPort* peer = core.port(port->peers[r]);
      if (peer == nullptr || peer->world_rank != dead || port->world_rank == dead) continue;
      port->fail(*core.scheduler, error(Code::kRemoteError, "rank {} died", r));
    }
  }
  std::vector<std::shared_ptr<SimLinkPort>> ports;  // the map may change under a handler
  for (auto& [key, port] : core.links) {
    if (port->world_rank != dead) ports.push_back(port);
  }
  for (auto& port : ports) {
    const auto& members = std::get<0>(port->key);
    for (size_t r = 0; r < members.size(); ++r) {
      if (members[r] == dead) sim_link_ended(lock, port, static_cast<int32_t>(r), false);
    }
  }
}

}  // namespace

SimWorld::SimWorld(std::shared_ptr<SimCore> core, std::vector<int32_t> members)
    : core_(std::move(core)), members_(std::move(members)), env_(core_->scheduler, members_) {}

Result<std::shared_ptr<SimWorld>> SimWorld::create(std::string_view text, int32_t ranks) {
  TRY_ASSIGN(const SimOptions options, parse_sim_options(text));
  if (ranks < 1 || ranks > kMaxSimRanks) {
    return error(Code::kInvalidArgument, "sim: ranks is {}, not 1 to {}", ranks, kMaxSimRanks);
  }
  static std::atomic<uint64_t> worlds{0};
  auto core = std::make_shared<SimCore>();
  core->scheduler = std::make_shared<SimScheduler>(options, ranks);
  core->nonce = worlds.fetch_add(1, std::memory_order_relaxed) + 1;
  core->killed.assign(static_cast<size_t>(ranks), false);
  core->open_transports.assign(static_cast<size_t>(ranks), 0);
  core->scheduler->on_deadlock = [core = core.get()] { report_to_transports(*core); };
  std::vector<int32_t> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  return std::make_shared<SimWorld>(std::move(core), std::move(members));
}

std::unique_ptr<MessageLinks> SimWorld::make_links(int32_t rank) {
  CHECK(rank >= 0 && rank < ranks());
  return std::make_unique<SimLinks>(core_, members_, rank);
}

std::shared_ptr<World> SimWorld::subworld(std::span<const int32_t> members) {
  std::vector<int32_t> inner;
  for (int32_t member : members) {
    CHECK(member >= 0 && member < ranks());
    inner.push_back(world_rank(member));
  }
  return std::make_shared<SimWorld>(core_, std::move(inner));
}

void SimWorld::sleep_ns(int64_t duration_ns) {
  core_->scheduler->wait({}, core_->scheduler->now_ns() + duration_ns);
}

void SimWorld::kill(int32_t rank) {
  CHECK(rank >= 0 && rank < ranks());
  const int32_t dead = world_rank(rank);
  Lock lock(core_->scheduler->mutex);
  if (core_->killed[static_cast<size_t>(dead)]) return;
  core_->killed[static_cast<size_t>(dead)] = true;
  for (auto& [id, port] : core_->ports) {
    if (port->world_rank != dead) continue;
    port->fail(*core_->scheduler, error(Code::kRemoteError, "rank {} died", port->rank));
  }
  core_->scheduler->add_event(
      core_->scheduler->now_ns() + core_->latency_ns(dead), dead, EventKind::kMessage,
      [core = core_.get(), dead](Lock& held) { spread_death(*core, held, dead); });
  core_->scheduler->set_absent(dead, true);
}

void SimWorld::mark_absent(int32_t rank) {
  CHECK(rank >= 0 && rank < ranks());
  Lock lock(core_->scheduler->mutex);
  core_->scheduler->set_absent(world_rank(rank), true);
}

bool SimWorld::deadlocked() const {
  Lock lock(core_->scheduler->mutex);
  return core_->scheduler->deadlocked();
}

uint64_t SimWorld::trace_hash() const {
  Lock lock(core_->scheduler->mutex);
  return core_->scheduler->trace_hash();
}

Result<std::shared_ptr<World>> make_sim_world(std::string_view options, int32_t ranks) {
  TRY_ASSIGN(std::shared_ptr<SimWorld> world, SimWorld::create(options, ranks));
  return std::shared_ptr<World>(std::move(world));
}

}  // namespace unisono
