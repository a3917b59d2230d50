// Control messages in a simulated world: each is an event after the same latency as data.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/message_links.h"
#include "transports/sim/sim_core.h"

namespace unisono {

// What deliveries to one SimLinks need; it may be there before the object is, and is guarded by the
// scheduler's mutex.
struct SimLinkPort {
  SimLinkKey key;
  int32_t world_rank = 0;
  bool opened = false, closed = false;
  MessageLinks::Handlers handlers;
  std::set<int32_t> neighbours;
  std::set<int32_t> ended;                   // neighbours whose end was told
  std::map<int32_t, int64_t> last_sent_ns;   // arrival of the last message to each
  std::vector<SimScheduler::EventFn> early;  // came before open()
  bool running = false;                      // a handler
  std::thread::id runner;
  std::condition_variable idle;
};

// See base/message_links.h. open() does not wait for the others: their messages, and ours, wait for
// them. Handlers run on whichever thread of the world waits.
class SimLinks final : public MessageLinks {
 public:
  // Rank `rank` of the group `members` (world ranks).
  SimLinks(std::shared_ptr<SimCore> core, const std::vector<int32_t>& members, int32_t rank);
  ~SimLinks() override { close(); }
  Status open(std::span<const int32_t> neighbours, Handlers handlers, int64_t deadline_ns) override;
  void connect(int32_t peer, int64_t deadline_ns) override;
  void send(int32_t neighbour, std::string message) override;
  void post(std::function<void()> fn, int64_t delay_ns) override;
  void close() override;

 private:
  std::shared_ptr<SimLinkPort> peer(int32_t rank);
  int64_t arrival_ns(int32_t neighbour, size_t bytes);

  const std::shared_ptr<SimCore> core_;
  SimScheduler& scheduler_;
  std::shared_ptr<SimLinkPort> port_;
};

// Tells `port` that `neighbour` has ended, once. The lock is held, and let go of for the handler.
void sim_link_ended(SimScheduler::Lock& lock, const std::shared_ptr<SimLinkPort>& port,
                    int32_t neighbour, bool orderly);

}  // namespace unisono
