// DeviceLink: how a communicator with a device reaches the library that does its collectives
// (transports/collective_provider.h), and the watcher that gives that library what it lacks:
// deadlines, stall reports, one error on all ranks.
//
// Calls are only put on queues by the caller's thread (device_calls.h). The watcher, a thread that
// sleeps while nothing is outstanding, asks marks whether the device has come to a call and past
// it. Whatever fails, here or on a peer, fails the communicator; then the watcher aborts the
// library's, which ends what runs on the device.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/env.h"
#include "comm/control/control.h"
#include "comm/device_stream.h"
#include "transports/collective_provider.h"

namespace unisono {

class Communicator;

// Between two looks at a device, which cannot wake anybody: spins, then sleeps a little.
class Pace {
 public:
  explicit Pace(Env& env) : env_(env) {}
  void wait();

 private:
  Env& env_;
  std::unique_ptr<Waiter> waiter_;
  int turns_ = 0;
  int64_t pause_ns_ = 0;
};

// For the scope: this thread's device, where it is another.
class OnDevice {
 public:
  OnDevice(DeviceRuntime& runtime, int32_t device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  const Status& status() const { return status_; }

 private:
  DeviceRuntime& runtime_;
  int32_t before_ = -1;  // -1: unchanged
  Status status_;
};

// What was issued together on one queue of one communicator. Its fields are guarded by the link's
// mutex.
struct DeviceWork {
  std::vector<CallRecord> calls;  // its collectives
  std::string first_transfer;     // "send to rank 3 (float32, count 5)"
  size_t transfers = 0;
  DeviceQueue queue = nullptr;
  std::shared_ptr<DeviceStream> stream;    // null: the link's own queue
  std::unique_ptr<DeviceMark> begin, end;  // null: recorded into a graph, which is not watched
  bool launched = false;                   // it is on its queue, and so is `end`
  bool done = false;
  Status status;           // once done
  int64_t timeout_ms = 0;  // from when the device comes to it
  int64_t since_ns = 0;    // when that was; 0: not yet
  int64_t next_stall_ns = 0;
  int32_t gone = -1;  // a rank seen to have left: perhaps not before doing its part
  std::string describe() const;
};

class DeviceLink {
 public:
  // Takes a provider that is ready. Starts the watcher.
  static Result<std::unique_ptr<DeviceLink>> create(Communicator& comm, DeviceRuntime& runtime,
                                                    std::unique_ptr<CollectiveProvider> provider,
                                                    int32_t device);
  ~DeviceLink();  // aborts what finish() has not ended
  DeviceLink(const DeviceLink&) = delete;

  Communicator& communicator() const { return comm_; }
  DeviceRuntime& runtime() const { return runtime_; }
  int32_t device() const { return device_; }
  DeviceQueue own_queue() const { return own_queue_; }
  std::mutex& mutex() { return mutex_; }

  // ---- With mutex() held (device_calls.cc) ----
  CollectiveProvider* provider() { return provider_.get(); }  // null: aborted or finished
  // New outstanding work, which begins where `queue` now ends.
  Result<std::shared_ptr<DeviceWork>> begin(DeviceQueue queue,
                                            std::shared_ptr<DeviceStream> stream);
  // It is all on its queue.
  Status launched(DeviceWork& work);

  // ---- Without; these may wait, up to the deadline of what is waited for ----
  // Until the provider has done what it has begun. Its failure is the communicator's.
  Status await_progress(const char* what);
  // Until the work is done; when it failed, until the device is through with it.
  Status await(DeviceWork& work);
  void settle();  // until no work is outstanding
  // Ends the provider in order, all work done: what may fail, and then fails the communicator. Of a
  // failed communicator it is aborted. Once.
  Status finish();
  Result<std::unique_ptr<CollectiveProvider>> split(int32_t color, int32_t key, int32_t ranks,
                                                    int32_t rank);
  Status supports(const DeviceCall& call);
  Status create_op(uint32_t handle, const void* scalar, DataType type);
  Status destroy_op(uint32_t handle);
  Status register_memory(void* pointer, size_t bytes);
  Status deregister_memory(void* pointer);

 private:
  DeviceLink(Communicator& comm, DeviceRuntime& runtime,
             std::unique_ptr<CollectiveProvider> provider, int32_t device);
  Result<std::unique_ptr<DeviceMark>> take_mark();
  // Runs `body` with the provider; a failure fails the communicator.
  template <class Body>
  Status with_provider(Body body);
  bool past(int64_t since_ns, int64_t timeout_ms) const;

  // The watcher's, with the mutex held.
  void watch();
  bool look();  // whether anything was outstanding
  Status retire();
  void keep_time(DeviceWork& work, int64_t now_ns);
  void tell(DeviceWork& work, int64_t now_ns);
  void give_up();

  Communicator& comm_;
  DeviceRuntime& runtime_;
  const int32_t device_;
  DeviceQueue own_queue_ = nullptr;  // of blocking calls
  std::mutex mutex_;
  std::unique_ptr<CollectiveProvider> provider_;
  std::deque<std::shared_ptr<DeviceWork>> outstanding_;  // in issue order
  std::vector<std::unique_ptr<DeviceMark>> spare_marks_;
  std::map<void*, void*> registrations_;  // address -> the provider's handle
  bool stop_ = false, asleep_ = false;
  std::unique_ptr<Waiter> waiter_;  // the watcher's
  std::unique_ptr<Thread> thread_;
};

}  // namespace unisono
