#include "algorithms/verify/machine.h"

#include <algorithm>
#include <utility>

namespace unisono::verify {

Machine::Machine(std::vector<const Plans*> calls, const Wiring& wiring, MachineOptions options)
    : calls_(std::move(calls)), wiring_(wiring), options_(options) {
  channels_.resize(wiring.channels.size());
  ends_.resize(at(wiring.ends));
  slots_.resize(slots());
  const size_t ranks = calls_.front()->size();
  ranks_.resize(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    first_process_.push_back(static_cast<int32_t>(processes_.size()));
    size_t most = 1;
    for (const Plans* plans : calls_) {
      if (!options.single_thread) most = std::max(most, (*plans)[r].lanes.size());
    }
    for (size_t l = 0; l < most; ++l) {
      Process process;
      process.rank = static_cast<int32_t>(r);
      process.lane = options.single_thread ? -1 : static_cast<int32_t>(l);
      processes_.push_back(process);
    }
  }
  first_process_.push_back(static_cast<int32_t>(processes_.size()));
}

const Plan& Machine::plan_of(int32_t rank) const {
  return (*calls_[ranks_[at(rank)].call])[at(rank)];
}

void Machine::push(int32_t process) {
  Process& p = processes_[at(process)];
  if (p.queued || p.finished) return;
  p.queued = true;
  ready_.push_back(process);
}

// Those lanes of the rank that wait for this. Messages and credit wake theirs by themselves.
void Machine::push_waiting(int32_t rank, Blocked why, int32_t awaited) {
  for (int32_t p = first_process_[at(rank)]; p < first_process_[at(rank) + 1]; ++p) {
    const Process& process = processes_[at(p)];
    if (process.why == why && (why != Blocked::kAwait || process.awaited == awaited)) push(p);
  }
}

// Starts the rank's call.
void Machine::enter(int32_t rank) {
  Rank& r = ranks_[at(rank)];
  const Plan& plan = plan_of(rank);
  r.passed.assign(plan.lanes.size(), 0);
  if (options_.late) {
    // In place is the form in which most memory is shared, so it waits longest.
    r.map.assign(1, MemoryMap(plan, true));
    r.reads.assign(at(r.map[0].slices(options_.rounds)), 0);
  }
  r.unfinished = 0;
  for (int32_t p = first_process_[at(rank)]; p < first_process_[at(rank) + 1]; ++p) {
    Process& process = processes_[at(p)];
    process.position = process.round = process.met = 0;
    process.why = Blocked::kNo;
    const size_t steps = process.lane < 0 ? plan.order.size()
                         : at(process.lane) < plan.lanes.size()
                             ? plan.lanes[at(process.lane)].steps.size()
                             : 0;
    process.finished = steps == 0;
    if (process.finished) continue;
    ++r.unfinished;
    push(p);
  }
}

// A call is complete when its lanes have ended and its sends have completed (rule 8); the next one
// begins.
void Machine::leave_if_done(int32_t rank) {
  Rank& r = ranks_[at(rank)];
  while (r.unfinished == 0 && r.uncompleted == 0 && r.call < calls_.size()) {
    if (++r.call < calls_.size()) enter(rank);
  }
}

bool Machine::current(const Process& process, Firing* firing) const {
  if (process.finished) return false;
  const Plan& plan = plan_of(process.rank);
  int32_t lane = process.lane, step = process.position;
  if (lane < 0) {
    lane = plan.order[at(process.position)].first;
    step = plan.order[at(process.position)].second;
  }
  *firing = {process.rank, lane, step, process.round, &plan.lanes[at(lane)].steps[at(step)]};
  return true;
}

bool Machine::send_reads_destination(const Firing& firing) const {
  const Rank& r = ranks_[at(firing.rank)];
  const Chunk& chunk = firing.what->destination;
  for (int32_t i = 0; i < chunk.blocks; ++i) {
    const int32_t location = r.map[0].location(chunk, i);
    if (r.reads[at(r.map[0].slice(location, firing.round))] > 0) return true;
  }
  return false;
}

// What has been met once is not looked at again: a step may have a thousand sources, and is asked
// after each.
Machine::Reason Machine::blocked_by(const Firing& firing, int32_t* met) const {
  const Rank& r = ranks_[at(firing.rank)];
  const Plan& plan = plan_of(firing.rank);
  const CallWiring& call = wiring_.calls[r.call];
  const Step& step = *firing.what;
  const size_t awaits = step.awaits.size();
  for (; at(*met) < awaits; ++*met) {
    const Await& await = step.awaits[at(*met)];
    const int64_t round = firing.round - await.lag;
    const int64_t steps = static_cast<int64_t>(plan.lanes[at(await.lane)].steps.size());
    if (round >= 0 && r.passed[at(await.lane)] <= round * steps + await.step) {
      return {Blocked::kAwait, *met};
    }
  }
  for (; at(*met) < awaits + step.sources.size(); ++*met) {
    const Operand& source = step.sources[at(*met) - awaits];
    if (!source.receive) continue;
    const Channel& channel = channels_[at(call.channel[at(firing.rank)][at(source.channel)])];
    const End& end = ends_[at(call.end[at(firing.rank)][at(source.channel)])];
    if (end.received >= channel.sent) return {Blocked::kMessage, source.channel};
  }
  if (step.forward >= 0) {
    const Channel& channel = channels_[at(call.channel[at(firing.rank)][at(step.forward)])];
    if (channel.sent - channel.completed >= options_.slots) return {Blocked::kCredit, step.forward};
  }
  if (options_.late && step.has_destination && send_reads_destination(firing)) {
    return {Blocked::kSend, 0};
  }
  return {};
}

// Leaves word with whatever will let the step go on.
void Machine::wait_for(int32_t process, const Firing& firing, const Reason& reason) {
  processes_[at(process)].why = reason.why;
  if (reason.why == Blocked::kAwait) {
    processes_[at(process)].awaited = firing.what->awaits[at(reason.number)].lane;
  }
  const CallWiring& call = wiring_.calls[ranks_[at(firing.rank)].call];
  if (reason.why == Blocked::kMessage) {
    ends_[at(call.end[at(firing.rank)][at(reason.number)])].reader_waits = process;
  } else if (reason.why == Blocked::kCredit) {
    channels_[at(call.channel[at(firing.rank)][at(reason.number)])].writer_waits = process;
  }
}

size_t Machine::slot_of_receive(const Firing& firing, int16_t channel) const {
  const CallWiring& call = wiring_.calls[ranks_[at(firing.rank)].call];
  const End& end = ends_[at(call.end[at(firing.rank)][at(channel)])];
  return at(call.channel[at(firing.rank)][at(channel)]) * at(options_.slots) +
         at(end.received % options_.slots);
}

size_t Machine::slot_of_send(const Firing& firing) const {
  const CallWiring& call = wiring_.calls[ranks_[at(firing.rank)].call];
  const int32_t channel = call.channel[at(firing.rank)][at(firing.what->forward)];
  return at(channel) * at(options_.slots) + at(channels_[at(channel)].sent % options_.slots);
}

// What a send by reference reads until its readers release it: the destination, or the one chunk
// that it sends.
void Machine::mark_reads(const Slot& slot, int32_t change) {
  Rank& r = ranks_[at(slot.rank)];
  const Plan& plan = (*calls_[at(slot.call)])[at(slot.rank)];
  const Step& step = plan.lanes[at(slot.lane)].steps[at(slot.step)];
  const auto mark = [&](const Chunk& chunk) {
    for (int32_t i = 0; i < chunk.blocks; ++i) {
      r.reads[at(r.map[0].slice(r.map[0].location(chunk, i), slot.round))] += change;
    }
  };
  if (step.has_destination) mark(step.destination);
  if (step.sources.size() == 1 && !step.sources[0].receive) mark(step.sources[0].chunk);
}

void Machine::complete(const Slot& slot) {
  if (!options_.late) return;
  mark_reads(slot, -1);
  --ranks_[at(slot.rank)].uncompleted;
  push_waiting(slot.rank, Blocked::kSend, 0);
  leave_if_done(slot.rank);
}

void Machine::receive(const Firing& firing, int16_t number) {
  const CallWiring& call = wiring_.calls[ranks_[at(firing.rank)].call];
  Slot& slot = slots_[slot_of_receive(firing, number)];
  ++ends_[at(call.end[at(firing.rank)][at(number)])].received;
  if (--slot.unreleased > 0) return;
  // Each reader releases in order, so messages complete in order.
  Channel& channel = channels_[at(call.channel[at(firing.rank)][at(number)])];
  ++channel.completed;
  const int32_t writer = std::exchange(channel.writer_waits, -1);
  if (writer >= 0) push(writer);
  complete(slot);
}

void Machine::send(const Firing& firing) {
  Rank& r = ranks_[at(firing.rank)];
  const int32_t number = wiring_.calls[r.call].channel[at(firing.rank)][at(firing.what->forward)];
  const WiredChannel& wired = wiring_.channels[at(number)];
  Slot& slot = slots_[slot_of_send(firing)];
  slot = {wired.readers, static_cast<int32_t>(r.call), firing.rank, firing.lane, firing.step,
          firing.round};
  ++channels_[at(number)].sent;
  if (options_.late) {
    ++r.uncompleted;
    mark_reads(slot, +1);
  }
  for (int32_t e = wired.first_end; e < wired.first_end + wired.readers; ++e) {
    const int32_t reader = std::exchange(ends_[at(e)].reader_waits, -1);
    if (reader >= 0) push(reader);
  }
}

void Machine::commit(int32_t number, const Firing& firing) {
  Process& process = processes_[at(number)];
  const Plan& plan = plan_of(firing.rank);
  Rank& r = ranks_[at(firing.rank)];
  if (firing.what->forward >= 0) send(firing);
  ++r.passed[at(firing.lane)];
  process.met = 0;
  process.why = Blocked::kNo;
  const size_t steps =
      process.lane < 0 ? plan.order.size() : plan.lanes[at(process.lane)].steps.size();
  if (at(++process.position) == steps) {
    process.position = 0;
    process.finished = ++process.round == options_.rounds;
  }
  // A release may complete a send of this very rank, and with it the call; not before all of this
  // step's releases.
  for (const Operand& source : firing.what->sources) {
    if (source.receive) receive(firing, source.channel);
  }
  if (plan.lanes.size() > 1) push_waiting(firing.rank, Blocked::kAwait, firing.lane);
  if (process.finished) --r.unfinished;
  leave_if_done(firing.rank);
}

Status Machine::run(Observer* observer) {
  for (size_t r = 0; r < ranks_.size(); ++r) enter(static_cast<int32_t>(r));
  for (size_t r = 0; r < ranks_.size(); ++r) leave_if_done(static_cast<int32_t>(r));
  while (!ready_.empty()) {
    const int32_t number = ready_.back();
    ready_.pop_back();
    processes_[at(number)].queued = false;
    Firing firing{};
    while (current(processes_[at(number)], &firing)) {
      const Reason reason = blocked_by(firing, &processes_[at(number)].met);
      if (reason.why != Blocked::kNo) {
        wait_for(number, firing, reason);
        break;
      }
      if (observer != nullptr) TRY(observer->fired(firing, *this));
      commit(number, firing);
    }
  }
  for (const Rank& rank : ranks_) {
    if (rank.call < calls_.size()) return deadlock();
  }
  for (size_t c = 0; c < channels_.size(); ++c) {
    if (channels_[c].sent == channels_[c].completed) continue;
    const ChannelId& id = wiring_.channels[c].id;
    return violation("14", Place{(*calls_.back())[at(id.writer)]},
                     "channel {}: {} -> {} is not empty after the calls", id.number, id.writer,
                     id.reader);
  }
  return {};
}

Status Machine::deadlock() const {
  for (const Process& process : processes_) {
    Firing firing{};
    if (ranks_[at(process.rank)].call >= calls_.size() || !current(process, &firing)) continue;
    int32_t met = process.met;
    const Reason reason = blocked_by(firing, &met);
    const Plan& plan = plan_of(firing.rank);
    std::string what = "uncompleted sends of what it writes";
    if (reason.why == Blocked::kAwait) {
      const Await& await = firing.what->awaits[at(reason.number)];
      what = fmt::format("lane {} step {} of {} rounds ago", await.lane, await.step, await.lag);
    } else if (reason.why != Blocked::kSend) {
      const ChannelId& id = plan.channels[at(reason.number)];
      what = fmt::format("{} channel {}: {} -> {}",
                         reason.why == Blocked::kMessage ? "a message of" : "credit of", id.number,
                         id.writer, id.reader);
    }
    return violation("14", Place{plan, firing.lane, firing.step, firing.round},
                     "deadlock at {} slots{}{}: waits for {}", options_.slots,
                     options_.late ? ", late mode" : "",
                     options_.single_thread ? ", one thread" : "", what);
  }
  return error(Code::kInternalError, "rule 14: a call does not complete");
}

}  // namespace unisono::verify
