// Stream and Event: in-order queues of asynchronous work behind uniStream_t and uniEvent_t.
//
// A stream has one thread, started with its first work, asleep when idle: it drives the stream's
// operations and runs its host functions. Streams do not block each other; a communicator still
// takes its operations in issue order (tickets).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/env.h"
#include "comm/operation.h"

namespace unisono {

class Communicator;
class DeviceStream;

// Shared by the handle and by queued work. Thread-safe.
class Event {
 public:
  // A new record; `env` and `rank` are those of the stream.
  uint64_t next_record(Env& env, int32_t rank);
  void reach(uint64_t record);
  uint64_t last_record() const;
  bool reached(uint64_t record) const;
  // Waits; false at the deadline (absolute on the recording stream's clock; timeout_ms < 0: none).
  bool wait(uint64_t record, int64_t timeout_ms);

 private:
  mutable std::mutex mutex_;
  Env* env_ = nullptr;
  int32_t rank_ = -1;
  uint64_t recorded_ = 0, reached_ = 0;
  std::vector<Waiter*> waiters_;
};

struct StreamWork {
  std::vector<std::unique_ptr<Operation>> operations;  // driven together
  std::function<void(const Status&)> host;             // gets the stream's first error so far
  std::shared_ptr<Event> record, wait;
  uint64_t event_record = 0;
};

class Stream {
 public:
  Stream() = default;
  explicit Stream(std::shared_ptr<DeviceStream> device) : device_(std::move(device)) {}
  ~Stream();  // completes the queue first; not from a host function of this stream
  Stream(const Stream&) = delete;

  // Null: a host stream. Else its work goes to a device's queue, and nothing below is used.
  const std::shared_ptr<DeviceStream>& device() const { return device_; }

  // To be called before an operation of `communicator` takes its ticket: the queueing that follows
  // then cannot fail.
  Status attach(const Communicator& communicator);
  // Queues; any thread. Operations bind the stream to their world (the machine, or one simulation):
  // kInvalidUsage if mixed.
  Status enqueue(StreamWork work);
  Status record(const std::shared_ptr<Event>& event);
  // Waits until everything queued so far is done; returns the first error since the last
  // synchronize.
  Status synchronize();
  bool idle() const;
  bool on_own_thread() const;

 private:
  Status bind(Env& env, int32_t rank);  // with the lock
  void run();
  Status perform(StreamWork& work);

  const std::shared_ptr<DeviceStream> device_;
  mutable std::mutex mutex_;
  Env* env_ = nullptr;
  int32_t rank_ = -1;
  std::unique_ptr<Waiter> waiter_;  // the thread's
  std::unique_ptr<Thread> thread_;
  std::thread::id thread_id_;
  std::deque<StreamWork> queue_;
  uint64_t queued_ = 0, done_ = 0;
  bool stop_ = false;
  Status error_;
  std::vector<Waiter*> idle_waiters_;
};

}  // namespace unisono
