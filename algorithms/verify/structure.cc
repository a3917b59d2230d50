// Well-formedness: what each step may name, and that the ends of every channel agree between the
// ranks. After it, the j-th send on a channel in a round is the j-th receive of that round at each
// reader, so the other checks may follow messages.
#include <algorithm>
#include <utility>

#include "algorithms/awaits.h"
#include "algorithms/verify/memory_map.h"
#include "algorithms/verify/wiring.h"

namespace unisono::verify {
namespace {

// One message of one round, by what must be equal at both ends.
struct Message {
  int32_t lane, step;
  int32_t first, blocks;
};

class Structure {
 public:
  Structure(const Plans& plans, const Wiring& wiring, const VerifyOptions& options)
      : plans_(plans),
        wiring_(wiring),
        options_(options),
        writer_lane_(wiring.channels.size(), -1),
        reader_lane_(at(wiring.ends), -1),
        sent_(wiring.channels.size()),
        last_use_(at(wiring.ends), 0) {}

  Status check() {
    for (const Plan& plan : plans_) TRY(check_plan(plan));
    for (const Plan& plan : plans_) TRY(check_receives(plan));
    return {};
  }

 private:
  Status check_plan(const Plan& plan) {
    for (size_t c = 0; c < plan.channels.size(); ++c) {
      const ChannelId& id = wiring_.channels[at(channel_of(plan, static_cast<int32_t>(c)))].id;
      if (id.reader == kAllButWriter && !options_.multicast) {
        return violation("1", Place{plan}, "channel {} of writer {} has several readers", id.number,
                         id.writer);
      }
    }
    scratch_names_.assign(plan.lanes.size(), {});
    for (size_t l = 0; l < plan.lanes.size(); ++l) {
      const Lane& lane = plan.lanes[l];
      for (size_t s = 0; s < lane.steps.size(); ++s) {
        TRY(check_step(plan, static_cast<int32_t>(l), static_cast<int32_t>(s)));
      }
      TRY(check_repeats(plan, static_cast<int32_t>(l)));
    }
    TRY(check_order(plan));
    MemoryMap apart(plan, false), in_place(plan, true);
    for (size_t l = 0; l < plan.lanes.size(); ++l) {
      for (size_t s = 0; s < plan.lanes[l].steps.size(); ++s) {
        const auto lane = static_cast<int32_t>(l), step = static_cast<int32_t>(s);
        TRY(check_own_overlap(plan, apart, lane, step));
        TRY(check_own_overlap(plan, in_place, lane, step));
      }
    }
    return {};
  }

  Status check_step(const Plan& plan, int32_t lane, int32_t number) {
    const Step& step = plan.lanes[at(lane)].steps[at(number)];
    const Place where{plan, lane, number};
    if (step.sources.empty()) return violation("9", where, "no source");
    if (!step.has_destination && step.forward < 0) {
      return violation("9", where, "neither destination nor forward");
    }
    if (step.length.first < 0 || step.length.first >= plan.blocks || step.length.blocks < 1 ||
        step.length.blocks > std::max(plan.message_blocks, plan.blocks)) {
      return violation("9", where, "length of {} blocks from {}", step.length.blocks,
                       step.length.first);
    }
    ++steps_;
    for (const Operand& source : step.sources) {
      if (!source.receive) {
        TRY(check_chunk(plan, step, source.chunk, where));
        continue;
      }
      TRY(check_receive_end(plan, source.channel, lane, where));
    }
    if (step.has_destination) {
      if (step.destination.buffer == Buffer::kInput) return violation("8", where, "writes input");
      TRY(check_chunk(plan, step, step.destination, where));
    }
    if (step.forward >= 0) TRY(check_send_end(plan, step, lane, number, where));
    return check_awaits(plan, step, lane, where);
  }

  Status check_chunk(const Plan& plan, const Step& step, const Chunk& chunk, const Place& where) {
    const bool scratch = chunk.buffer == Buffer::kScratch;
    if (scratch && (chunk.lane < 0 || at(chunk.lane) >= plan.lanes.size())) {
      return violation("7", where, "scratch of no lane");
    }
    const int32_t blocks = blocks_of(plan, chunk);
    const bool inside = chunk.first >= 0 && chunk.first < blocks && chunk.blocks >= 1 &&
                        chunk.blocks <= blocks &&
                        (!scratch || chunk.first + chunk.blocks <= blocks);
    if (!inside) {
      return violation(scratch ? "7" : "6", where, "chunk of {} blocks from {}, buffer of {}",
                       chunk.blocks, chunk.first, blocks);
    }
    const bool same =
        chunk.blocks == step.length.blocks &&
        (scratch ? keeps_length(plan, step, chunk)
                 : !lengths_differ(plan) ||
                       user_block_name(plan, chunk.buffer, chunk.first) == step.length.first);
    if (!same) {
      return violation("9", where, "chunk of {} blocks from {} has not the length ({} from {})",
                       chunk.blocks, chunk.first, step.length.blocks, step.length.first);
    }
    return {};
  }

  // Blocks of a split vector, or of a v-variant, differ in size, so a chunk must be the very blocks
  // that the length names.
  bool lengths_differ(const Plan& plan) const {
    return plan.rule == BlockRule::kSplit || options_.unequal_blocks;
  }

  // A scratch block holds what one block's name says the length of, in the whole plan.
  bool keeps_length(const Plan& plan, const Step& step, const Chunk& chunk) {
    if (!lengths_differ(plan)) return true;
    std::vector<int32_t>& names = scratch_names_[at(chunk.lane)];
    names.resize(at(plan.scratch_blocks[at(chunk.lane)]), -1);
    for (int32_t i = 0; i < chunk.blocks; ++i) {
      const int32_t name = (step.length.first + i) % plan.blocks;
      int32_t& known = names[at(chunk.first + i)];
      if (known != -1 && known != name) return false;
      known = name;
    }
    return true;
  }

  Status check_receive_end(const Plan& plan, int16_t channel, int32_t lane, const Place& where) {
    if (channel < 0 || at(channel) >= plan.channels.size()) {
      return violation("9", where, "receives from no channel");
    }
    const int32_t end = wiring_.calls[0].end[at(plan.rank)][at(channel)];
    if (end < 0) return violation("1", where, "receives from a channel that it does not read");
    if (std::exchange(last_use_[at(end)], steps_) == steps_) {
      return violation("9", where, "receives twice from one channel");
    }
    int32_t& owner = reader_lane_[at(end)];
    if (owner >= 0 && owner != lane) {
      return violation("2", where, "lane {} receives from this channel too", owner);
    }
    owner = lane;
    return {};
  }

  Status check_send_end(const Plan& plan, const Step& step, int32_t lane, int32_t number,
                        const Place& where) {
    if (at(step.forward) >= plan.channels.size()) return violation("9", where, "no such channel");
    const int32_t channel = channel_of(plan, step.forward);
    if (wiring_.channels[at(channel)].id.writer != plan.rank) {
      return violation("1", where, "sends on a channel that it does not write");
    }
    int32_t& owner = writer_lane_[at(channel)];
    if (owner >= 0 && owner != lane) {
      return violation("2", where, "lane {} sends on this channel too", owner);
    }
    owner = lane;
    if (step.length.blocks > plan.message_blocks) {
      return violation("6", where, "message of {} blocks, message_blocks is {}", step.length.blocks,
                       plan.message_blocks);
    }
    sent_[at(channel)].push_back({lane, number, step.length.first, step.length.blocks});
    return {};
  }

  Status check_awaits(const Plan& plan, const Step& step, int32_t lane, const Place& where) {
    for (const Await& await : step.awaits) {
      if (await.lane < 0 || at(await.lane) >= plan.lanes.size() || await.lane == lane) {
        return violation("11", where, "awaits lane {}", await.lane);
      }
      if (await.step < 0 || at(await.step) >= plan.lanes[at(await.lane)].steps.size()) {
        return violation("11", where, "awaits step {} of lane {}", await.step, await.lane);
      }
      if (await.lag != 0 && await.lag != 2) return violation("11", where, "lag {}", await.lag);
    }
    return {};
  }

  Status check_repeats(const Plan& plan, int32_t number) {
    const Lane& lane = plan.lanes[at(number)];
    int64_t end = 0;
    for (const Repeat& repeat : lane.repeats) {
      const Place where{plan, number, repeat.first};
      const int64_t past = repeat.first + static_cast<int64_t>(repeat.body) * repeat.times;
      if (repeat.first < end || repeat.body < 1 || repeat.times < 1 ||
          past > static_cast<int64_t>(lane.steps.size())) {
        return violation("12", where, "repeat of {} x {} steps leaves its lane or nests",
                         repeat.times, repeat.body);
      }
      end = past;
      for (int64_t s = repeat.first + repeat.body; s < past; ++s) {
        const Step& one = lane.steps[at(s - repeat.body)];
        const Step& next = lane.steps[at(s)];
        bool alike = one.sources.size() == next.sources.size() &&
                     one.has_destination == next.has_destination && one.final == next.final &&
                     (one.forward >= 0) == (next.forward >= 0);
        for (size_t i = 0; alike && i < one.sources.size(); ++i) {
          alike = one.sources[i].receive == next.sources[i].receive &&
                  one.sources[i].chunk.buffer == next.sources[i].chunk.buffer;
        }
        if (!alike) return violation("12", where, "step {} is not like its repeat", s);
      }
    }
    return {};
  }

  // The order is one that a single thread can run: each step once, after its lane's earlier ones
  // and what it awaits.
  Status check_order(const Plan& plan) {
    std::vector<int32_t> done(plan.lanes.size(), 0);
    for (const auto& [lane, step] : plan.order) {
      if (lane < 0 || at(lane) >= plan.lanes.size() || step != done[at(lane)] ||
          at(step) >= plan.lanes[at(lane)].steps.size()) {
        return violation("10", Place{plan}, "order has lane {} step {} out of turn", lane, step);
      }
      for (const Await& await : plan.lanes[at(lane)].steps[at(step)].awaits) {
        if (await.lag == 0 && done[at(await.lane)] <= await.step) {
          return violation("10", Place{plan, lane, step},
                           "is in the order before lane {} step {}, which it awaits", await.lane,
                           await.step);
        }
      }
      ++done[at(lane)];
    }
    for (size_t l = 0; l < plan.lanes.size(); ++l) {
      if (at(done[l]) == plan.lanes[l].steps.size()) continue;
      return violation("10", Place{plan}, "order lacks steps of lane {}", l);
    }
    return {};
  }

  // The destination may equal an operand exactly, or be apart from it.
  Status check_own_overlap(const Plan& plan, const MemoryMap& map, int32_t lane, int32_t number) {
    const Step& step = plan.lanes[at(lane)].steps[at(number)];
    if (!step.has_destination) return {};
    written_.resize(std::max(written_.size(), at(map.size())), 0);
    const auto mark = [&](int32_t clear) {
      for (int32_t i = 0; i < step.length.blocks; ++i) {
        written_[at(map.location(step.destination, i))] = clear * (i + 1);
      }
    };
    mark(1);
    bool apart = true;
    for (const Operand& source : step.sources) {
      if (source.receive || source.chunk == step.destination) continue;
      for (int32_t i = 0; i < step.length.blocks; ++i) {
        const int32_t block = written_[at(map.location(source.chunk, i))];
        apart &= block == 0 || block == i + 1;
      }
    }
    mark(0);
    if (apart) return {};
    return violation("9", Place{plan, lane, number},
                     "destination overlaps an operand without being equal to it");
  }

  // The j-th receive of a round is the j-th send: as many, as long, the same blocks.
  Status check_receives(const Plan& plan) {
    std::vector<size_t> received(plan.channels.size(), 0);
    for (size_t l = 0; l < plan.lanes.size(); ++l) {
      for (size_t s = 0; s < plan.lanes[l].steps.size(); ++s) {
        const Step& step = plan.lanes[l].steps[s];
        for (const Operand& source : step.sources) {
          if (!source.receive) continue;
          TRY(check_message(plan, step, source.channel, received[at(source.channel)]++,
                            static_cast<int32_t>(l), static_cast<int32_t>(s)));
        }
      }
    }
    for (size_t c = 0; c < plan.channels.size(); ++c) {
      if (wiring_.calls[0].end[at(plan.rank)][c] < 0) continue;
      const int32_t channel = channel_of(plan, static_cast<int32_t>(c));
      const size_t sent = sent_[at(channel)].size();
      if (received[c] != sent) return count_differs(channel, plan.rank, sent, received[c]);
    }
    return check_unread(plan);
  }

  Status check_message(const Plan& plan, const Step& step, int16_t number, size_t j, int32_t lane,
                       int32_t step_number) {
    const int32_t channel = channel_of(plan, number);
    const std::vector<Message>& sent = sent_[at(channel)];
    if (j >= sent.size()) return count_differs(channel, plan.rank, sent.size(), j + 1);
    const bool same = sent[j].blocks == step.length.blocks &&
                      (!lengths_differ(plan) || sent[j].first == step.length.first);
    if (same) return {};
    return violation("9", Place{plan, lane, step_number},
                     "receives blocks {} from {}, but rank {} lane {} step {} sends {} from {}",
                     step.length.blocks, step.length.first, wiring_.channels[at(channel)].id.writer,
                     sent[j].lane, sent[j].step, sent[j].blocks, sent[j].first);
  }

  // A reader that does not even know the channel.
  Status check_unread(const Plan& plan) {
    for (size_t c = 0; c < plan.channels.size(); ++c) {
      const int32_t channel = channel_of(plan, static_cast<int32_t>(c));
      const WiredChannel& wired = wiring_.channels[at(channel)];
      if (wired.id.writer != plan.rank || sent_[at(channel)].empty()) continue;
      for (int32_t e = wired.first_end; e < wired.first_end + wired.readers; ++e) {
        if (reader_lane_[at(e)] >= 0) continue;
        const int32_t index = e - wired.first_end;
        const int32_t reader = wired.readers == 1        ? wired.id.reader
                               : index < wired.id.writer ? index
                                                         : index + 1;
        return count_differs(channel, reader, sent_[at(channel)].size(), 0);
      }
    }
    return {};
  }

  Status count_differs(int32_t channel, int32_t reader, size_t sent, size_t received) const {
    const ChannelId& id = wiring_.channels[at(channel)].id;
    return violation("1", Place{plans_[at(id.writer)]},
                     "sends {} messages a round on channel {}: {} -> {}, rank {} receives {}{}",
                     sent, id.number, id.writer, id.reader, reader, received,
                     received > sent ? " or more" : "");
  }

  int32_t channel_of(const Plan& plan, int32_t number) const {
    return wiring_.calls[0].channel[at(plan.rank)][at(number)];
  }

  const Plans& plans_;
  const Wiring& wiring_;
  const VerifyOptions& options_;
  std::vector<int32_t> writer_lane_, reader_lane_;
  std::vector<std::vector<Message>> sent_;           // by channel, of one round
  std::vector<std::vector<int32_t>> scratch_names_;  // of one plan, by lane and block; -1: none
  int64_t steps_ = 0;                                // seen so far
  std::vector<int64_t> last_use_;                    // by end: the step that last received from it
  std::vector<int32_t> written_;  // by location: 1 + which block of the destination
};

}  // namespace

Status check_structure(const Plans& plans, const Wiring& wiring, const VerifyOptions& options) {
  return Structure(plans, wiring, options).check();
}

}  // namespace unisono::verify
