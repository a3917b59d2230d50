// Machine: the plan machine without data. It runs the lanes of all ranks at K slots until every
// call is over or nobody can move.
//
// Every end of a channel belongs to one lane, channels are FIFO and no step is undone by another's
// progress, so the order in which lanes are tried changes nothing: one run that goes as far as it
// can decides whether there is a deadlock (as in a Kahn network). A step fires at once: when its
// awaits have passed, its messages are there, its forward has a slot at every reader and (late
// mode) no uncompleted send reads what it will write. That is stricter than an executor, never
// laxer.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/verify/memory_map.h"
#include "algorithms/verify/wiring.h"

namespace unisono::verify {

struct MachineOptions {
  int slots = 2;
  int rounds = 4;
  bool late =
      false;  // a send completes when its readers have released it; else when it is accepted
  bool single_thread = false;  // each rank runs Plan::order, as the small path does
};

class Machine {
 public:
  // A step about to commit. Slots name messages: index channel * K + number % K, unique while the
  // message is on its way.
  struct Firing {
    int32_t rank, lane, step, round;
    const Step* what;
  };
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual Status fired(const Firing& firing, const Machine& machine) = 0;
  };

  // `calls` are run one after the other on each rank; `wiring` is theirs, in that order. Plans and
  // wiring outlive the machine.
  Machine(std::vector<const Plans*> calls, const Wiring& wiring, MachineOptions options);
  // Runs to the end. Deadlock: a violation that names one blocked step and what it waits for.
  Status run(Observer* observer);

  // For observers, during fired(): the slot of the message that `firing` receives from or sends to
  // a channel of its plan.
  size_t slot_of_receive(const Firing& firing, int16_t channel) const;
  size_t slot_of_send(const Firing& firing) const;
  size_t slots() const { return channels_.size() * at(options_.slots); }

 private:
  enum class Blocked : uint8_t { kNo, kAwait, kMessage, kCredit, kSend };
  struct Process {
    int32_t rank = 0, lane = 0;  // lane: of the rank's current call, or -1 when it runs the order
    int32_t position = 0, round = 0;
    int32_t met = 0;      // of its step's awaits, then sources: they stay so until it fires
    int32_t awaited = 0;  // kAwait: the lane
    Blocked why = Blocked::kNo;
    bool queued = false, finished = false;
  };
  struct Channel {
    int64_t sent = 0, completed = 0;
    int32_t writer_waits = -1;  // a process
  };
  struct End {
    int64_t received = 0;
    int32_t reader_waits = -1;
  };
  struct Slot {  // a message on its way
    int32_t unreleased = 0, call = 0, rank = 0, lane = 0, step = 0, round = 0;
  };
  struct Rank {
    size_t call = 0;
    int32_t unfinished = 0;       // processes
    int64_t uncompleted = 0;      // sends
    std::vector<int64_t> passed;  // by lane: steps passed in this call
    std::vector<int32_t> reads;   // late: uncompleted sends that read a slice
    std::vector<MemoryMap> map;   // late: of this call; one element
  };
  struct Reason {
    Blocked why = Blocked::kNo;
    int32_t number = 0;  // await or channel (of the plan)
  };

  const Plan& plan_of(int32_t rank) const;
  void enter(int32_t rank);
  void leave_if_done(int32_t rank);
  void push(int32_t process);
  void push_waiting(int32_t rank, Blocked why, int32_t awaited);
  bool current(const Process& process, Firing* firing) const;
  Reason blocked_by(const Firing& firing, int32_t* met) const;
  bool send_reads_destination(const Firing& firing) const;
  void wait_for(int32_t process, const Firing& firing, const Reason& reason);
  void commit(int32_t process, const Firing& firing);
  void receive(const Firing& firing, int16_t channel);
  void send(const Firing& firing);
  void complete(const Slot& slot);
  void mark_reads(const Slot& slot, int32_t change);
  Status deadlock() const;

  std::vector<const Plans*> calls_;
  const Wiring& wiring_;
  MachineOptions options_;
  std::vector<Process> processes_;
  std::vector<int32_t> first_process_;  // by rank; one more than ranks
  std::vector<Rank> ranks_;
  std::vector<Channel> channels_;
  std::vector<End> ends_;
  std::vector<Slot> slots_;
  std::vector<int32_t> ready_;
};

}  // namespace unisono::verify
