#include "tools/uni_plan/simulator.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <tuple>

#include "base/check.h"

namespace unisono::uni_plan {
namespace {

// A rank that has work keeps a shared core so long at least, as under Linux's scheduler.
constexpr double kTurnUs = 3000;

size_t at(int64_t number) {
  return static_cast<size_t>(number);
}

// How a call's blocks are cut into slices, as comm/geometry does it.
class Cut {
 public:
  Cut(const Program& program, const Topology& topology, const SimulatedCall& call)
      : whole_(program.rule == BlockRule::kWhole),
        alike_(program.symmetric()),
        bytes_(call.element_bytes) {
    const uint64_t align = std::max<uint64_t>(1, 64 / bytes_);
    block_ = whole_ ? call.elements : block_share(call.elements, program.blocks, align);
    if (!whole_ && block_ > 0) {
      full_ = static_cast<int64_t>(call.elements / block_);
      rest_ = call.elements % block_;
    }
    blocks_ = program.blocks;
    const uint64_t a_block =
        topology.slice_bytes / static_cast<uint64_t>(program.message_blocks) / bytes_;
    slice_ = std::max<uint64_t>(1, a_block >= align ? a_block / align * align : a_block);
    rounds = std::max<uint64_t>(1, (block_ + slice_ - 1) / slice_);
  }

  // Bytes of the message of `blocks` blocks from `first` in a round.
  double bytes(int32_t first, int32_t blocks, uint64_t round) const {
    const double one = slice(block_, round);
    // All blocks are taken for full ones where one rank stands for many: it cannot own the last.
    if (whole_ || alike_) return one * blocks;
    int64_t full = 0;
    bool partial = false;
    for (int64_t from = first, left = blocks; left > 0; from = 0) {
      const int64_t now = std::min<int64_t>(left, blocks_ - from);
      full += std::clamp<int64_t>(full_ - from, 0, now);
      partial |= from <= full_ && full_ < from + now;
      left -= now;
    }
    return one * static_cast<double>(full) + (partial ? slice(rest_, round) : 0);
  }

  uint64_t rounds = 1;

 private:
  double slice(uint64_t length, uint64_t round) const {
    const uint64_t from = round * slice_;
    return from >= length ? 0 : static_cast<double>(std::min(slice_, length - from) * bytes_);
  }
  bool whole_, alike_;
  uint64_t bytes_, block_ = 0, rest_ = 0, slice_ = 1;
  int64_t full_ = 0, blocks_ = 1;
};

// What messages pass through: ports that serve one at a time, in order of arrival. With a burst:
// a token bucket, full at first, that is as late as it may be.
struct Port {
  double us_per_byte = 0, burst_us = 0;
  double free_at = 0;
};

class Network {
 public:
  struct Path {
    int32_t ports[4];
    int32_t hops = 0;
    double latency_us = 0;
  };

  Network(const Program& program, const Topology& t) {
    const std::vector<int32_t> host_of = t.host_of_ranks();
    const int32_t hosts = host_of[at(program.simulated - 1)] + 1;
    const int32_t racks = t.hosts_per_rack == 0 ? 0 : (hosts - 1) / t.hosts_per_rack + 1;
    const int32_t first_host = 2 * program.simulated, first_rack = first_host + 2 * hosts;
    const auto port_of = [](const Link& link) {
      const double us_per_byte = 8e-3 / link.gbit_per_s;
      return Port{us_per_byte, link.burst_bytes * us_per_byte};
    };
    ports.resize(at(first_host), port_of(t.memory));
    ports.resize(at(first_rack), port_of(t.nic));
    ports.resize(at(first_rack + 2 * racks), port_of(t.uplink));
    for (const auto& [host, rate] : t.slow_hosts)
      for (const int32_t way : {0, 1})
        ports[at(first_host + 2 * host + way)] = port_of({rate, 0, t.nic.burst_bytes});
    for (const ProgramChannel& channel : program.channels) {
      Path path;
      const auto pass = [&](int32_t port) { path.ports[path.hops++] = port; };
      const int32_t from = host_of[at(channel.writer)], to = host_of[at(channel.to)];
      const int32_t to_local = host_of[at(channel.reader)];
      if (from == to) {
        pass(2 * channel.writer);
        pass(2 * channel.reader + 1);
        path.latency_us = t.memory.latency_us;
      } else {
        path.latency_us = t.nic.latency_us;
        pass(first_host + 2 * from);
        if (racks > 0 && from / t.hosts_per_rack != to / t.hosts_per_rack) {
          pass(first_rack + 2 * (from / t.hosts_per_rack));
          pass(first_rack + 2 * (to_local / t.hosts_per_rack) + 1);
          path.latency_us += t.uplink.latency_us;
        }
        pass(first_host + 2 * to_local + 1);
      }
      paths.push_back(path);
    }
  }

  std::vector<Port> ports;
  std::vector<Path> paths;  // by channel
};

class Simulation {
 public:
  // `rounds` of all calls; a call has `rounds_a_call` of them.
  Simulation(const Program& program, const Topology& topology, const Cut& cut, uint64_t rounds,
             uint64_t rounds_a_call)
      : program_(program),
        topology_(topology),
        cut_(cut),
        rounds_(rounds),
        rounds_a_call_(rounds_a_call),
        network_(program, topology),
        lanes_(program.lanes.size()),
        ranks_(at(program.simulated)),
        cores_(at(topology.cores > 0 ? topology.cores : program.simulated)),
        channels_(program.channels.size()),
        released_at_(program.channels.size() * at(topology.slots), 0) {}

  // Microseconds until the last rank's last step.
  double run() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      ranks_[rank].core = static_cast<int32_t>(rank % cores_.size());
    for (size_t lane = 0; lane < lanes_.size(); ++lane) attempt(static_cast<int32_t>(lane));
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      switch (event.kind) {
        case Kind::kStepEnds:
          step_ends(event.number);
          break;
        case Kind::kHop:
          hop(event);
          break;
        case Kind::kArrives:
          ++channels_[at(event.number)].arrived;
          attempt(program_.channels[at(event.number)].reader_lane);
          break;
        case Kind::kCredit:
          attempt(event.number);
          break;
      }
    }
    for (size_t lane = 0; lane < lanes_.size(); ++lane) CHECK(over(static_cast<int32_t>(lane)));
    return last_;
  }
  uint64_t messages() const { return messages_; }

 private:
  enum class Kind : uint8_t { kStepEnds, kArrives, kHop, kCredit };
  struct Event {
    double time = 0;
    int32_t number = 0;  // lane (step ends, credit) or channel
    Kind kind = Kind::kStepEnds;
    int8_t hops = 0;        // passed
    double bytes = 0;       // of the message
    double not_before = 0;  // its last byte's arrival, as far as earlier ports allow
    bool operator<(const Event& other) const {  // the queue's top is the greatest
      return std::tie(time, kind, number) > std::tie(other.time, other.kind, other.number);
    }
  };
  // Runs one rank at a time, until it has nothing to do or its turn is over.
  struct Core {
    bool busy = false;
    int32_t rank = -1;     // that runs, or ran last
    double turn_ends = 0;  // then others that wait come first
  };
  struct RankState {
    std::deque<int32_t> ready;  // lanes whose step may begin, in the order in which it might
    int32_t core = 0;           // that it runs on, or ran on last
    bool running = false;
  };
  struct LaneState {
    uint32_t position = 0;
    uint64_t round = 0, passed = 0;
    bool busy = false;
  };
  struct ChannelState {
    int64_t sent = 0, arrived = 0, consumed = 0;
    bool writer_waits = false;
  };

  bool over(int32_t lane) const {
    return program_.lanes[at(lane)].steps == 0 || lanes_[at(lane)].round == rounds_;
  }
  const ProgramStep& step_of(int32_t lane) const {
    return program_.steps[program_.lanes[at(lane)].first_step + lanes_[at(lane)].position];
  }

  // The rank's next call begins when all lanes have ended the one before.
  bool waits_for_call(int32_t lane) const {
    const LaneState& state = lanes_[at(lane)];
    if (state.position != 0 || state.round == 0 || state.round % rounds_a_call_ != 0) return false;
    const int32_t first_lane = program_.lanes[at(lane)].rank * program_.lanes_per_rank;
    for (int32_t other = first_lane; other < first_lane + program_.lanes_per_rank; ++other)
      if (program_.lanes[at(other)].steps > 0 && lanes_[at(other)].round < state.round) return true;
    return false;
  }

  bool passed_awaits(int32_t lane, const ProgramStep& step) const {
    const int32_t first_lane = program_.lanes[at(lane)].rank * program_.lanes_per_rank;
    for (uint16_t i = 0; i < step.awaits; ++i) {
      const Await& await = program_.awaits[step.first_await + i];
      const int32_t other = first_lane + await.lane;
      const uint64_t round = lanes_[at(lane)].round, lag = static_cast<uint64_t>(await.lag);
      if (round < lag) continue;
      const uint64_t wanted =
          (round - lag) * program_.lanes[at(other)].steps + static_cast<uint64_t>(await.step) + 1;
      if (lanes_[at(other)].passed < wanted) return false;
    }
    return true;
  }

  // A slot is free at the writer; if not, the lane is tried again when one is.
  bool has_credit(int32_t lane, int32_t number) {
    ChannelState& channel = channels_[at(number)];
    const int64_t wanted = channel.sent - topology_.slots;  // this message's release
    if (wanted < 0) return true;
    if (channel.consumed <= wanted) {
      channel.writer_waits = true;
      return false;
    }
    const double time =
        released_at_[at(number) * at(topology_.slots) + at(wanted % topology_.slots)];
    if (time <= now_) return true;
    events_.push({time, lane, Kind::kCredit});
    return false;
  }

  void attempt(int32_t lane) {
    LaneState& state = lanes_[at(lane)];
    if (state.busy || over(lane) || waits_for_call(lane)) return;
    const ProgramStep& step = step_of(lane);
    if (!passed_awaits(lane, step)) return;
    for (uint16_t i = 0; i < step.receives; ++i) {
      const ChannelState& channel = channels_[at(program_.receives[step.first_receive + i])];
      if (channel.arrived == channel.consumed) return;
    }
    if (step.forward >= 0 && !has_credit(lane, step.forward)) return;
    state.busy = true;
    const int32_t rank = program_.lanes[at(lane)].rank;
    RankState& owner = ranks_[at(rank)];
    owner.ready.push_back(lane);
    if (owner.running || owner.ready.size() > 1) return;  // runs, or waits for a core
    waiting_.push_back(rank);
    dispatch();
  }

  // Ranks that wait get cores that are free: the one that they ran on before, or any.
  void dispatch() {
    while (!waiting_.empty()) {
      const int32_t rank = waiting_.front();
      int32_t core = ranks_[at(rank)].core;
      if (cores_[at(core)].busy) {
        const auto idle =
            std::find_if(cores_.begin(), cores_.end(), [](const Core& one) { return !one.busy; });
        if (topology_.cores == 0 || idle == cores_.end()) return;
        core = static_cast<int32_t>(idle - cores_.begin());
      }
      waiting_.pop_front();
      Core& chosen = cores_[at(core)];
      const double switch_us = chosen.rank >= 0 && chosen.rank != rank ? topology_.switch_us : 0;
      chosen = {true, rank, now_ + switch_us + kTurnUs};
      ranks_[at(rank)].core = core;
      ranks_[at(rank)].running = true;
      begin_step(rank, switch_us);
    }
  }

  // The first of the rank's steps that may begin, on its core.
  void begin_step(int32_t rank, double after_us) {
    std::deque<int32_t>& ready = ranks_[at(rank)].ready;
    const int32_t lane = ready.front();
    ready.pop_front();
    const double us = work_us(step_of(lane), lanes_[at(lane)].round % rounds_a_call_);
    events_.push({now_ + after_us + us, lane, Kind::kStepEnds});
  }

  // The rank's step has ended: its next, or another rank's.
  void next_on_core(int32_t rank) {
    RankState& state = ranks_[at(rank)];
    Core& core = cores_[at(state.core)];
    if (!state.ready.empty() && (waiting_.empty() || now_ < core.turn_ends))
      return begin_step(rank, 0);
    state.running = core.busy = false;
    if (!state.ready.empty()) waiting_.push_back(rank);
    dispatch();
  }

  double work_us(const ProgramStep& step, uint64_t round) const {
    const double bytes = cut_.bytes(step.first, step.blocks, round);
    const int messages = step.receives + (step.forward >= 0 ? 1 : 0);
    double us = topology_.overhead_us * messages;
    if (topology_.message_gigabytes_per_s > 0)
      us += bytes * messages / topology_.message_gigabytes_per_s * 1e-3;
    if (step.operands > 1 && topology_.reduce_gigabytes_per_s > 0)
      us += bytes * step.operands / topology_.reduce_gigabytes_per_s * 1e-3;
    if (step.copies && topology_.copy_gigabytes_per_s > 0)
      us += bytes / topology_.copy_gigabytes_per_s * 1e-3;
    return us;
  }

  void step_ends(int32_t lane) {
    LaneState& state = lanes_[at(lane)];
    const ProgramStep& step = step_of(lane);
    last_ = std::max(last_, now_);
    for (uint16_t i = 0; i < step.receives; ++i) release(program_.receives[step.first_receive + i]);
    if (step.forward >= 0) {
      ++channels_[at(step.forward)].sent;
      ++messages_;
      const double bytes = cut_.bytes(step.first, step.blocks, state.round % rounds_a_call_);
      hop({now_, step.forward, Kind::kHop, 0, bytes, now_});
    }
    ++state.passed;
    if (++state.position == program_.lanes[at(lane)].steps) {
      state.position = 0;
      ++state.round;
    }
    state.busy = false;
    const int32_t first_lane = program_.lanes[at(lane)].rank * program_.lanes_per_rank;
    attempt(lane);
    for (int32_t other = first_lane; other < first_lane + program_.lanes_per_rank; ++other)
      if (other != lane) attempt(other);
    next_on_core(program_.lanes[at(lane)].rank);
  }

  void release(int32_t number) {
    ChannelState& channel = channels_[at(number)];
    const double time = now_ + network_.paths[at(number)].latency_us;
    released_at_[at(number) * at(topology_.slots) + at(channel.consumed % topology_.slots)] = time;
    ++channel.consumed;
    if (!std::exchange(channel.writer_waits, false)) return;
    events_.push({time, program_.channels[at(number)].writer_lane, Kind::kCredit});
  }

  // Cut-through: a port passes the head on when it begins to serve the message.
  void hop(Event message) {
    const Network::Path& path = network_.paths[at(message.number)];
    Port& port = network_.ports[at(path.ports[message.hops])];
    const double begin = std::max(now_, port.free_at - port.burst_us);
    port.free_at = std::max(now_, port.free_at) + message.bytes * port.us_per_byte;
    // The slower of this port and those before it says when the last byte is through.
    const double through = std::max({now_, port.free_at - port.burst_us, message.not_before});
    const double latency = message.hops == 0 ? path.latency_us : 0;
    message.not_before = through + latency;
    if (++message.hops == path.hops) {
      events_.push({message.not_before, message.number, Kind::kArrives});
      return;
    }
    message.time = begin + latency;
    message.kind = Kind::kHop;
    events_.push(message);
  }

  const Program& program_;
  const Topology& topology_;
  const Cut& cut_;
  uint64_t rounds_, rounds_a_call_;
  Network network_;
  std::vector<LaneState> lanes_;
  std::vector<RankState> ranks_;
  std::vector<Core> cores_;      // by rank, or the shared ones
  std::deque<int32_t> waiting_;  // ranks with ready steps and no core, in order
  std::vector<ChannelState> channels_;
  std::vector<double> released_at_;  // by channel and slot: when the writer knows
  std::priority_queue<Event> events_;
  double now_ = 0, last_ = 0;
  uint64_t messages_ = 0;
};

}  // namespace

uint64_t rounds_of(const Program& program, const Topology& topology, const SimulatedCall& call) {
  return Cut(program, topology, call).rounds;
}

SimulatedTime simulate_call(const Program& program, const Topology& topology,
                            const SimulatedCall& call, const SimulatorOptions& options) {
  const Cut cut(program, topology, call);
  const auto run = [&](uint64_t rounds, uint64_t calls, uint64_t* messages) {
    Simulation simulation(program, topology, cut, rounds * calls, rounds);
    const double us = simulation.run();
    if (messages != nullptr) *messages = simulation.messages();
    return us;
  };
  SimulatedTime result;
  result.rounds = cut.rounds;
  result.simulated = std::min(cut.rounds, std::max<uint64_t>(options.most_rounds, 8));
  const auto one_call = [&](uint64_t rounds, uint64_t* messages) {
    const double us = run(rounds, options.calls > 1 ? 2 * options.calls : 1, messages);
    if (options.calls <= 1) return us;
    return (us - run(rounds, options.calls, nullptr)) / static_cast<double>(options.calls);
  };
  result.us = one_call(result.simulated, &result.messages);
  if (result.simulated == result.rounds) return result;
  const uint64_t half = result.simulated / 2;
  const double pace =
      (result.us - one_call(half, nullptr)) / static_cast<double>(result.simulated - half);
  result.us += pace * static_cast<double>(result.rounds - result.simulated);
  return result;
}

}  // namespace unisono::uni_plan
