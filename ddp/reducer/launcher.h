// Launches buckets strictly in order of index on one stream, whatever order they become complete
// in: ranks whose gradients come in different orders then issue the same collectives.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "ddp/reducer/layout.h"
#include "ddp/status.h"
#include "unisono/ddp.h"

namespace unisono::ddp {

class Launcher {
 public:
  // comm is borrowed.
  explicit Launcher(uniComm_t comm) : comm_(comm) {}
  ~Launcher();  // Completes the stream's work first.
  Launcher(const Launcher&) = delete;
  Status open();  // Makes the stream. Once, before all else.
  uniStream_t stream() const { return stream_; }

  // Between iterations. layout and memory are borrowed until the next call.
  Status set_buckets(const Layout* layout, std::byte* memory);
  void begin(uniBucketHook_t hook, void* hook_arg);

  // From any thread: one more parameter of the bucket lies in it. Launches what can be launched. An
  // error is that of a launch, here or earlier in this iteration; nothing more is launched then.
  Status parameter_done(int bucket);

  // For one thread, once no parameter_done() is under way.
  // Waits for bucket, which was launched; false if its work failed.
  bool wait(int bucket);
  // Waits for all work on the stream. The first error of it.
  Status drain();
  const Status& error() const { return error_; }
  size_t wire_bytes() const { return wire_bytes_; }
  int64_t first_launch_ns() const { return first_launch_ns_; }
  int64_t last_completion_ns() const;

 private:
  struct Progress {
    std::atomic<int> parameters_left{0};
    uniEvent_t event = nullptr;
    uniResult_t result = uniSuccess;  // Both written on the stream, before the event.
    int64_t completion_ns = 0;
  };
  static void note_completion(void* progress, uniResult_t status);
  void drop_progress();
  Status launch_ready();  // With the lock.
  Status launch(int index);
  Status average(const Bucket& bucket, int index);

  const uniComm_t comm_;
  uniStream_t stream_ = nullptr;
  const Layout* layout_ = nullptr;
  std::byte* memory_ = nullptr;
  uniBucketHook_t hook_ = nullptr;
  void* hook_arg_ = nullptr;
  std::unique_ptr<Progress[]> progress_;
  size_t progress_count_ = 0;

  std::mutex mutex_;  // All calls on comm_ in an iteration, and what follows.
  size_t next_ = 0;
  Status error_;
  size_t wire_bytes_ = 0;
  int64_t first_launch_ns_ = 0;
};

}  // namespace unisono::ddp
