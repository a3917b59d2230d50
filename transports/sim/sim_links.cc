#include "transports/sim/sim_links.h"

#include "base/check.h"
#include "base/log.h"

namespace unisono {
namespace {

using Lock = SimScheduler::Lock;
using EventKind = SimScheduler::EventKind;

// Runs a handler without the lock, so that close() can tell.
template <class Fn>
void run_handler(Lock& lock, SimLinkPort& port, const Fn& fn) {
  const bool nested = port.running;
  port.running = true;
  port.runner = std::this_thread::get_id();
  lock.unlock();
  fn();
  lock.lock();
  port.running = nested;
  if (!nested) port.idle.notify_all();
}

std::shared_ptr<SimLinkPort> find_port(SimCore& core, const SimLinkKey& key) {
  auto& port = core.links[key];
  if (port == nullptr) {
    const auto& [members, set, rank] = key;
    port = std::make_shared<SimLinkPort>();
    port->key = key;
    port->world_rank = members[static_cast<size_t>(rank)];
  }
  return port;
}

// Now, or, where the peer has not opened its links yet, as soon as it does. `fn` must not own the
// port, which may come to own it: for one that is never opened (or was closed, and is asked for
// again) that would be for ever. The caller keeps the port alive meanwhile.
void deliver(Lock& lock, SimLinkPort& port, SimScheduler::EventFn fn) {
  if (port.closed) return;
  if (!port.opened) {
    port.early.push_back(std::move(fn));
    return;
  }
  fn(lock);
}

}  // namespace

void sim_link_ended(Lock& lock, const std::shared_ptr<SimLinkPort>& port, int32_t neighbour,
                    bool orderly) {
  deliver(lock, *port, [port = port.get(), neighbour, orderly](Lock& held) {
    if (port->closed || !port->neighbours.contains(neighbour) ||
        !port->ended.insert(neighbour).second) {
      return;
    }
    run_handler(held, *port, [&] { port->handlers.closed(neighbour, orderly); });
  });
}

SimLinks::SimLinks(std::shared_ptr<SimCore> core, const std::vector<int32_t>& members, int32_t rank)
    : core_(std::move(core)), scheduler_(*core_->scheduler) {
  Lock lock(scheduler_.mutex);
  // The n-th set that this rank makes for these members belongs with the n-th of the others.
  const uint64_t set = core_->link_sets[{members, rank}]++;
  port_ = find_port(*core_, SimLinkKey(members, set, rank));
}

std::shared_ptr<SimLinkPort> SimLinks::peer(int32_t rank) {
  SimLinkKey key = port_->key;
  std::get<2>(key) = rank;
  return find_port(*core_, key);
}

Status SimLinks::open(std::span<const int32_t> neighbours, Handlers handlers, int64_t) {
  const auto& members = std::get<0>(port_->key);
  for (int32_t neighbour : neighbours) {
    if (neighbour < 0 || static_cast<size_t>(neighbour) >= members.size() ||
        neighbour == std::get<2>(port_->key)) {
      return error(Code::kInvalidArgument, "sim: rank {} cannot be a neighbour", neighbour);
    }
  }
  Lock lock(scheduler_.mutex);
  if (port_->opened || port_->closed) return error(Code::kInvalidUsage, "sim: links open once");
  for (int32_t neighbour : neighbours) {
    if (core_->killed[static_cast<size_t>(members[static_cast<size_t>(neighbour)])]) {
      return error(Code::kRemoteError, "rank {} died", neighbour);
    }
  }
  port_->neighbours.insert(neighbours.begin(), neighbours.end());
  port_->handlers = std::move(handlers);
  port_->opened = true;
  // What came early is delivered as an event of its own: never on the caller's stack.
  if (!port_->early.empty()) {
    scheduler_.add_event(scheduler_.now_ns(), port_->world_rank, EventKind::kMessage,
                         [port = port_](Lock& held) {
                           for (auto& fn : std::exchange(port->early, {})) {
                             if (!port->closed) fn(held);
                           }
                         });
  }
  return ok_status();
}

void SimLinks::connect(int32_t to, int64_t) {
  Lock lock(scheduler_.mutex);
  if (!port_->opened || port_->closed) return;
  const int32_t from = std::get<2>(port_->key);
  SimLinkKey key = port_->key;
  std::get<2>(key) = to;
  scheduler_.add_event(
      arrival_ns(to, 0), port_->world_rank, EventKind::kMessage,
      [core = core_.get(), port = port_, key, from, to](Lock& held) {
        const auto found = core->links.find(key);  // not there: closed
        const std::shared_ptr<SimLinkPort> theirs =
            found == core->links.end() ? nullptr : found->second;
        const bool up = theirs != nullptr && !theirs->closed &&
                        !core->killed[static_cast<size_t>(theirs->world_rank)];
        if (up) {
          deliver(held, *theirs, [theirs = theirs.get(), from](Lock& inner) {
            if (!theirs->neighbours.insert(from).second || !theirs->handlers.linked) return;
            run_handler(inner, *theirs, [&] { theirs->handlers.linked(from, true); });
          });
        }
        if (port->closed) return;
        if (up) port->neighbours.insert(to);
        if (!port->handlers.linked) return;
        run_handler(held, *port, [&] { port->handlers.linked(to, up); });
      });
}

int64_t SimLinks::arrival_ns(int32_t neighbour, size_t bytes) {
  int64_t wire_free = 0;  // control messages are too small to queue for the wire
  int64_t& last = port_->last_sent_ns[neighbour];
  last = std::max(last, core_->arrival_ns(port_->world_rank, bytes, &wire_free));
  return last;
}

void SimLinks::send(int32_t neighbour, std::string message) {
  if (message.size() > kMaxControlMessageBytes) {
    log_error("sim: a control message of {} bytes is too long", message.size());
    return;
  }
  Lock lock(scheduler_.mutex);
  if (!port_->opened || port_->closed || !port_->neighbours.contains(neighbour) ||
      core_->killed[static_cast<size_t>(port_->world_rank)]) {
    return;
  }
  const int32_t from = std::get<2>(port_->key);
  scheduler_.add_event(
      arrival_ns(neighbour, message.size()), port_->world_rank, EventKind::kMessage,
      [to = peer(neighbour), from, text = std::move(message)](Lock& held) mutable {
        deliver(held, *to, [to = to.get(), from, text = std::move(text)](Lock& inner) mutable {
          if (to->closed || !to->neighbours.contains(from) || to->ended.contains(from)) return;
          run_handler(inner, *to, [&] { to->handlers.message(from, std::move(text)); });
        });
      });
}

void SimLinks::post(std::function<void()> fn, int64_t delay_ns) {
  Lock lock(scheduler_.mutex);
  if (port_->closed) return;
  scheduler_.add_event(scheduler_.now_ns() + std::max<int64_t>(delay_ns, 0), port_->world_rank,
                       delay_ns > 0 ? EventKind::kTimer : EventKind::kMessage,
                       [port = port_, fn = std::move(fn)](Lock& held) {
                         if (!port->closed) run_handler(held, *port, fn);
                       });
}

void SimLinks::close() {
  Handlers handlers;  // destroyed without the lock
  std::vector<SimScheduler::EventFn> early;
  Lock lock(scheduler_.mutex);
  if (!port_->closed) {
    port_->closed = true;
    const int32_t from = std::get<2>(port_->key);
    const bool dead = core_->killed[static_cast<size_t>(port_->world_rank)];
    for (int32_t neighbour : port_->neighbours) {
      if (dead || port_->ended.contains(neighbour)) continue;
      scheduler_.add_event(
          arrival_ns(neighbour, 0), port_->world_rank, EventKind::kMessage,
          [to = peer(neighbour), from](Lock& held) { sim_link_ended(held, to, from, true); });
    }
    core_->links.erase(port_->key);
  }
  if (port_->running && port_->runner == std::this_thread::get_id()) return;
  while (port_->running) port_->idle.wait(lock);
  handlers = std::exchange(port_->handlers, {});
  early = std::exchange(port_->early, {});
  lock.unlock();
}

}  // namespace unisono
