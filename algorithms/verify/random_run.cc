#include "algorithms/verify/random_run.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>

#include "algorithms/verify/memory_map.h"
#include "algorithms/verify/wiring.h"

namespace unisono {
namespace {

using verify::at;
using verify::Plans;
using verify::Wiring;

struct Element {
  uint64_t sum = 0, hash = 0;
  bool operator==(const Element&) const = default;
};

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
  return x ^ (x >> 29);
}

// A pre-multiplied sum whose scalar differs between ranks, so that whoever scales twice or not at
// all is found.
Element scaled(Element e, int32_t rank) {
  const uint64_t factor = 3 + 2 * static_cast<uint64_t>(rank);
  return {e.sum * factor, mix(e.hash + factor)};
}
Element final_value(Element e) {
  return {e.sum * 7 + 3, mix(e.hash ^ 0x5555)};
}
Element reduced(const std::vector<Element>& operands) {
  Element result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    result.sum += operands[i].sum;
    result.hash = result.hash * 31 + operands[i].hash;
  }
  if (operands.size() > 1) result.hash = mix(result.hash + operands.size());
  return result;
}

struct Segment {
  size_t begin = 0, size = 0;
};
using Segments = std::vector<Segment>;

// One rank's buffers.
struct Memory {
  std::vector<Element> elements, given;  // now; at the call
  size_t input = 0, output = 0;
  std::vector<size_t> scratch;  // by lane
};

struct Message {
  std::vector<Element> payload;
  bool arrived = false;
  // Before a transport has copied it, or by reference: where it lies.
  bool by_reference = false, scale = false;
  int32_t rank = 0;
  Segments lies;
  int32_t unreleased = 0;
};

struct Channel {
  std::deque<Message> messages;  // not yet released by all
  int64_t first = 0;             // number of the first of them
};

enum class Phase : uint8_t { kStart, kRead, kWrite, kSend, kRelease };

struct Process {
  int32_t rank = 0, lane = -1;  // lane -1: the order
  size_t position = 0;
  int64_t round = 0;
  Phase phase = Phase::kStart;
  std::vector<Element> result;
};

class Run {
 public:
  Run(const Plans& plans, const Wiring& wiring, const RandomRunOptions& options)
      : plans_(plans),
        wiring_(wiring),
        options_(options),
        random_(options.seed),
        op_(has_op(plans[0].collective)),
        channels_(wiring.channels.size()),
        received_(at(wiring.ends), 0),
        entered_(plans.size(), false),
        unfinished_(plans.size(), 0) {
    for (int32_t b = 0; b < plans[0].blocks; ++b) {
      const uint64_t slices = (block_size(b) + options.slice_elements - 1) / options.slice_elements;
      rounds_ = std::max(rounds_, static_cast<int64_t>(slices));
    }
    for (const Plan& plan : plans) {
      lay_out(plan);
      passed_.emplace_back(plan.lanes.size(), 0);
      for (int32_t lane = options.single_thread ? -1 : 0;
           lane < (options.single_thread ? 0 : static_cast<int32_t>(plan.lanes.size())); ++lane) {
        Process process;
        process.rank = plan.rank;
        process.lane = lane;
        if (steps(process) == 0) continue;
        processes_.push_back(process);
        ++unfinished_[at(plan.rank)];
      }
    }
  }

  Status run() {
    std::vector<size_t> priority(processes_.size() + 1);  // the last is the transport
    std::iota(priority.begin(), priority.end(), size_t{0});
    std::shuffle(priority.begin(), priority.end(), random_);
    for (;;) {
      if (random_() % 8 == 0) {
        std::swap(priority[random_() % priority.size()], priority[random_() % priority.size()]);
      }
      const size_t start = random_() % 4 == 0 ? random_() % priority.size() : 0;
      bool moved = false;
      for (size_t i = 0; i < priority.size() && !moved; ++i) {
        const size_t who = priority[(start + i) % priority.size()];
        moved = who == processes_.size() ? transport_moves() : moves(&processes_[who]);
      }
      TRY(failure_);
      if (!moved) break;
    }
    for (const Process& p : processes_) {
      if (p.round < rounds_) {
        return error(Code::kInternalError, "deadlock: rank {} lane {} step {} round {}", p.rank,
                     p.lane, p.position, p.round);
      }
    }
    for (const Channel& channel : channels_) {
      if (!channel.messages.empty()) return error(Code::kInternalError, "a channel is not empty");
    }
    return check();
  }

 private:
  uint64_t block_begin_of(int32_t block) const {
    return plans_[0].rule == BlockRule::kWhole
               ? options_.count * static_cast<uint64_t>(block)
               : block_begin(options_.count, plans_[0].blocks, block, 1);
  }
  uint64_t block_size(int32_t block) const {
    return block_begin_of(block + 1) - block_begin_of(block);
  }
  Segment slice(int32_t block, int64_t round) const {
    const uint64_t size = block_size(block);
    const uint64_t begin = std::min(size, static_cast<uint64_t>(round) * options_.slice_elements);
    return {block_begin_of(block) + begin, std::min(size - begin, options_.slice_elements)};
  }
  size_t steps(const Process& p) const {
    const Plan& plan = plans_[at(p.rank)];
    return p.lane < 0 ? plan.order.size() : plan.lanes[at(p.lane)].steps.size();
  }

  void lay_out(const Plan& plan) {
    Memory memory;
    const bool in_place = options_.in_place == InPlace::kAll ||
                          (options_.in_place == InPlace::kEveryOther && plan.rank % 2 == 0);
    const size_t inputs = plan.input_blocks > 0 ? block_begin_of(plan.input_blocks) : 0;
    const size_t outputs = plan.output_blocks > 0 ? block_begin_of(plan.output_blocks) : 0;
    const size_t own = block_begin_of(plan.rule == BlockRule::kWhole ? plan.rank : 0);
    size_t size = inputs + outputs;
    memory.output = inputs;
    if (in_place && verify::has_in_place_form(plan)) {
      size = std::max(inputs, outputs);
      memory.output = inputs > outputs ? own : 0;
      memory.input = outputs > inputs ? own : 0;
    }
    for (int32_t blocks : plan.scratch_blocks) {
      memory.scratch.push_back(size);
      size += 2 * at(blocks) * options_.slice_elements;
    }
    for (size_t i = 0; i < size; ++i) memory.elements.push_back({random_(), random_()});
    memory.given = memory.elements;
    memory_.push_back(std::move(memory));
  }

  // Where a chunk's slices of this round lie; they must be as long as the step says.
  Segments locate(const Plan& plan, const Step& step, const Chunk& chunk, int64_t round) {
    const Memory& memory = memory_[at(plan.rank)];
    Segments segments;
    for (int32_t i = 0; i < chunk.blocks; ++i) {
      const Segment length = slice((step.length.first + i) % plan.blocks, round);
      if (chunk.buffer == Buffer::kScratch) {
        const size_t block = 2 * at(chunk.first + i) + at(round % 2);
        segments.push_back(
            {memory.scratch[at(chunk.lane)] + block * options_.slice_elements, length.size});
        continue;
      }
      Segment segment = slice((chunk.first + i) % verify::blocks_of(plan, chunk), round);
      if (segment.size != length.size) fail(plan, "operand of another length");
      segment.begin += chunk.buffer == Buffer::kInput ? memory.input : memory.output;
      segments.push_back(segment);
    }
    if (chunk.blocks != step.length.blocks) fail(plan, "operand of another length");
    return segments;
  }

  std::vector<Element> load(int32_t rank, const Segments& segments, bool scale) const {
    std::vector<Element> values;
    for (const Segment& segment : segments) {
      for (size_t i = 0; i < segment.size; ++i) {
        const Element& e = memory_[at(rank)].elements[segment.begin + i];
        values.push_back(scale ? scaled(e, rank) : e);
      }
    }
    return values;
  }

  void fail(const Plan& plan, const char* what) {
    if (failure_.ok()) failure_ = error(Code::kInternalError, "rank {}: {}", plan.rank, what);
  }

  Channel& channel_of(const Plan& plan, int16_t number) {
    return channels_[at(wiring_.calls[0].channel[at(plan.rank)][at(number)])];
  }
  int64_t& received_of(const Plan& plan, int16_t number) {
    return received_[at(wiring_.calls[0].end[at(plan.rank)][at(number)])];
  }
  // The next message here; nullptr: none yet.
  Message* next_message(const Plan& plan, int16_t number) {
    Channel& channel = channel_of(plan, number);
    const int64_t index = received_of(plan, number) - channel.first;
    if (index >= static_cast<int64_t>(channel.messages.size())) return nullptr;
    Message& message = channel.messages[at(index)];
    return message.arrived ? &message : nullptr;
  }

  bool moves(Process* p) {
    if (p->round >= rounds_) return false;
    if (!entered_[at(p->rank)]) {
      entered_[at(p->rank)] = true;
      return true;
    }
    const Plan& plan = plans_[at(p->rank)];
    int32_t lane = p->lane;
    size_t number = p->position;
    if (lane < 0) {
      lane = plan.order[p->position].first;
      number = at(plan.order[p->position].second);
    }
    const Step& step = plan.lanes[at(lane)].steps[number];
    switch (p->phase) {
      case Phase::kStart:
        if (!may_start(plan, step, p->round)) return false;
        p->phase = Phase::kRead;
        return true;
      case Phase::kRead:
        read(plan, step, p);
        p->phase = step.has_destination ? Phase::kWrite : Phase::kSend;
        return true;
      case Phase::kWrite:
        write(plan, step, p);
        p->phase = Phase::kSend;
        return true;
      case Phase::kSend:
        if (step.forward >= 0 && !send(plan, step, *p)) return false;
        p->phase = Phase::kRelease;
        return true;
      case Phase::kRelease:
        release(plan, step);
        ++passed_[at(p->rank)][at(lane)];
        p->phase = Phase::kStart;
        if (++p->position == steps(*p)) {
          p->position = 0;
          if (++p->round == rounds_) finished(plan);
        }
        return true;
    }
    return false;
  }

  bool may_start(const Plan& plan, const Step& step, int64_t round) {
    for (const Await& await : step.awaits) {
      const int64_t of = round - await.lag;
      const auto size = static_cast<int64_t>(plan.lanes[at(await.lane)].steps.size());
      if (of >= 0 && passed_[at(plan.rank)][at(await.lane)] <= of * size + await.step) return false;
    }
    for (const Operand& source : step.sources) {
      if (source.receive && next_message(plan, source.channel) == nullptr) return false;
    }
    if (!step.has_destination) return true;
    // The writer waits for its uncompleted sends of what it overwrites (rule 11).
    for (const Segment& mine : locate(plan, step, step.destination, round)) {
      for (const Channel& channel : channels_) {
        for (const Message& message : channel.messages) {
          if (message.rank != plan.rank || !message.by_reference) continue;
          for (const Segment& sent : message.lies) {
            if (mine.begin < sent.begin + sent.size && sent.begin < mine.begin + mine.size) {
              return false;
            }
          }
        }
      }
    }
    return true;
  }

  void read(const Plan& plan, const Step& step, Process* p) {
    std::vector<std::vector<Element>> operands;
    for (const Operand& source : step.sources) {
      if (source.receive) {
        const Message& message = *next_message(plan, source.channel);
        operands.push_back(message.by_reference ? load(message.rank, message.lies, message.scale)
                                                : message.payload);
      } else {
        operands.push_back(load(plan.rank, locate(plan, step, source.chunk, p->round),
                                op_ && source.chunk.buffer == Buffer::kInput));
      }
      if (operands.back().size() != operands[0].size())
        return fail(plan, "operands of two lengths");
    }
    p->result.clear();
    std::vector<Element> column(operands.size());
    for (size_t i = 0; i < operands[0].size(); ++i) {
      for (size_t s = 0; s < operands.size(); ++s) column[s] = operands[s][i];
      const Element value = reduced(column);
      p->result.push_back(op_ && step.final ? final_value(value) : value);
    }
  }

  void write(const Plan& plan, const Step& step, Process* p) {
    size_t i = 0;
    for (const Segment& segment : locate(plan, step, step.destination, p->round)) {
      for (size_t j = 0; j < segment.size && i < p->result.size(); ++j) {
        memory_[at(plan.rank)].elements[segment.begin + j] = p->result[i++];
      }
    }
  }

  bool send(const Plan& plan, const Step& step, const Process& p) {
    Channel& channel = channel_of(plan, step.forward);
    if (channel.messages.size() >= at(options_.slots)) return false;
    Message message;
    message.rank = plan.rank;
    message.unreleased =
        wiring_.channels[at(wiring_.calls[0].channel[at(plan.rank)][at(step.forward)])].readers;
    const bool copies = step.sources.size() == 1 && !step.sources[0].receive;
    if (step.has_destination && !(copies && !step.final && random_() % 2 == 0)) {
      message.by_reference = true;
      message.lies = locate(plan, step, step.destination, p.round);
    } else if (copies && !step.final &&
               !(step.has_destination &&
                 locate(plan, step, step.destination, p.round)[0].begin ==
                     locate(plan, step, step.sources[0].chunk, p.round)[0].begin)) {
      message.by_reference = true;
      message.lies = locate(plan, step, step.sources[0].chunk, p.round);
      message.scale = op_ && step.sources[0].chunk.buffer == Buffer::kInput;
    } else {
      message.payload = p.result;
    }
    // Late: readers look into our memory. Else the transport copies it, when it likes.
    message.arrived = options_.late || !message.by_reference;
    channel.messages.push_back(std::move(message));
    return true;
  }

  bool transport_moves() {
    std::vector<Message*> pending;
    for (Channel& channel : channels_) {
      for (Message& message : channel.messages) {
        if (!message.arrived) pending.push_back(&message);
      }
    }
    if (pending.empty()) return false;
    Message& message = *pending[random_() % pending.size()];
    message.payload = load(message.rank, message.lies, message.scale);
    message.by_reference = false;
    message.arrived = true;
    return true;
  }

  void release(const Plan& plan, const Step& step) {
    for (const Operand& source : step.sources) {
      if (!source.receive) continue;
      --next_message(plan, source.channel)->unreleased;
      ++received_of(plan, source.channel);
      Channel& channel = channel_of(plan, source.channel);
      while (!channel.messages.empty() && channel.messages.front().unreleased == 0) {
        channel.messages.pop_front();
        ++channel.first;
      }
    }
  }

  void finished(const Plan& plan) {
    if (--unfinished_[at(plan.rank)] > 0 || plan.collective != Collective::kBarrier) return;
    if (std::find(entered_.begin(), entered_.end(), false) == entered_.end()) return;
    fail(plan, "left the barrier before all had entered");
  }

  // What input block `block` of `rank` held, scaled if the collective reduces.
  Element given(int32_t rank, int32_t block, uint64_t i) const {
    const Memory& memory = memory_[at(rank)];
    const Element& e = memory.given[memory.input + block_begin_of(block) + i];
    return op_ ? scaled(e, rank) : e;
  }

  Element expected(const Plan& plan, int32_t block, uint64_t i) const {
    switch (plan.collective) {
      case Collective::kBroadcast:
        return given(plan.root, block, i);
      case Collective::kScatter:
        return given(plan.root, plan.rank, i);
      case Collective::kAllToAll:
        return given(block, plan.rank, i);
      case Collective::kAllGather:
      case Collective::kGather:
        return given(block, 0, i);
      default:
        break;
    }
    std::vector<Element> operands;
    for (int32_t r = 0; r < plan.ranks; ++r) {
      operands.push_back(
          given(r, plan.collective == Collective::kReduceScatter ? plan.rank : block, i));
    }
    return final_value(reduced(operands));
  }

  Status check() const {
    if (plans_[0].collective == Collective::kBarrier) return {};
    const auto held = [&](const Plan& plan, int32_t block, uint64_t i) {
      const Memory& memory = memory_[at(plan.rank)];
      return memory.elements[memory.output + block_begin_of(block) + i];
    };
    for (const Plan& plan : plans_) {
      for (int32_t b = 0; b < plan.output_blocks; ++b) {
        for (uint64_t i = 0; i < block_size(b); ++i) {
          const Element value = held(plan, b, i), right = expected(plan, b, i);
          const bool exact = !op_ || plan.reproducible;
          if (value.sum != right.sum || (exact && value.hash != right.hash)) {
            return error(Code::kInternalError, "rank {}: wrong value in block {} at {}", plan.rank,
                         b, i);
          }
          if (plan.collective == Collective::kAllReduce && value != held(plans_[0], b, i)) {
            return error(Code::kInternalError, "rank {}: block {} differs from rank 0's", plan.rank,
                         b);
          }
        }
      }
    }
    return {};
  }

  const Plans& plans_;
  const Wiring& wiring_;
  const RandomRunOptions options_;
  std::mt19937_64 random_;
  const bool op_;
  int64_t rounds_ = 1;
  std::vector<Memory> memory_;  // by rank
  std::vector<Process> processes_;
  std::vector<Channel> channels_;
  std::vector<int64_t> received_;             // by end
  std::vector<std::vector<int64_t>> passed_;  // by rank, by lane
  std::vector<bool> entered_;                 // by rank
  std::vector<int32_t> unfinished_;
  Status failure_;
};

}  // namespace

Status random_run(const std::vector<Plan>& plans, const RandomRunOptions& options) {
  if (plans.empty() || options.slots < 1 || options.slice_elements < 1) {
    return error(Code::kInvalidArgument, "nothing to run");
  }
  TRY_ASSIGN(const Wiring wiring, verify::wire({&plans}));
  return Run(plans, wiring, options).run();
}

}  // namespace unisono
