#include "ddp/reducer/launcher.h"

#include <algorithm>

#include "ddp/reducer/averaging.h"
#include "ddp/reducer/clock.h"

namespace unisono::ddp {

Launcher::~Launcher() {
  (void)uniStreamDestroy(stream_);
  drop_progress();
}

Status Launcher::open() {
  return called(uniStreamCreate(&stream_));
}

void Launcher::drop_progress() {
  for (size_t i = 0; i < progress_count_; i++) (void)uniEventDestroy(progress_[i].event);
  progress_.reset();
  progress_count_ = 0;
}

Status Launcher::set_buckets(const Layout* layout, std::byte* memory) {
  layout_ = layout;
  memory_ = memory;
  drop_progress();
  progress_ = std::make_unique<Progress[]>(layout->buckets.size());
  for (; progress_count_ < layout->buckets.size(); progress_count_++) {
    uniEvent_t* event = &progress_[progress_count_].event;
    if (const uniResult_t made = uniEventCreate(event); made != uniSuccess) {
      return called(made);
    }
  }
  return {};
}

void Launcher::begin(uniBucketHook_t hook, void* hook_arg) {
  hook_ = hook;
  hook_arg_ = hook_arg;
  for (size_t i = 0; i < progress_count_; i++) {
    progress_[i].parameters_left.store(static_cast<int>(layout_->buckets[i].parameters.size()),
                                       std::memory_order_relaxed);
    progress_[i].result = uniSuccess;
  }
  next_ = 0;
  error_ = {};
  wire_bytes_ = 0;
  first_launch_ns_ = 0;
}

Status Launcher::parameter_done(int bucket) {
  std::atomic<int>& left = progress_[static_cast<size_t>(bucket)].parameters_left;
  // Releases this thread's writes to the bucket, acquires the others'.
  if (left.fetch_sub(1, std::memory_order_acq_rel) > 1) return {};
  const std::lock_guard lock(mutex_);
  return launch_ready();
}

Status Launcher::launch_ready() {
  while (error_.ok() && next_ < progress_count_ &&
         progress_[next_].parameters_left.load(std::memory_order_acquire) == 0) {
    error_ = launch(static_cast<int>(next_));
    if (error_.ok()) next_++;
  }
  return error_;
}

Status Launcher::launch(int index) {
  if (first_launch_ns_ == 0) first_launch_ns_ = now_ns();
  const Bucket& bucket = layout_->buckets[static_cast<size_t>(index)];
  DDP_TRY(average(bucket, index));
  Progress& progress = progress_[static_cast<size_t>(index)];
  DDP_TRY(called(uniStreamLaunchHostFunc(stream_, &note_completion, &progress)));
  return called(uniEventRecord(progress.event, stream_));
}

Status Launcher::average(const Bucket& bucket, int index) {
  std::byte* data = memory_ + bucket.offset;
  const int buckets = static_cast<int>(progress_count_);
  if (hook_ == nullptr) {
    wire_bytes_ += bucket.bytes();
    const uniRedOp_t op = is_divided_before_sum(bucket.type) ? uniSum : uniAvg;
    const uniResult_t result =
        uniAllReduce(data, data, bucket.count, bucket.type, op, comm_, stream_);
    if (result == uniSuccess) return {};
    return ddp::error(result, "bucket {} of {}: {}", index, buckets, uniGetLastError(nullptr));
  }
  uniBucket_t view{sizeof view, data,  bucket.count, bucket.type,   index,
                   buckets,     comm_, stream_,      bucket.bytes()};
  // The words, if any, are then the hook's own.
  (void)uniSetLastError(uniSuccess, nullptr);
  const uniResult_t result = hook_(hook_arg_, &view);
  wire_bytes_ += view.wire_bytes;
  if (result == uniSuccess) return {};
  const std::string words = uniGetLastError(nullptr);
  return ddp::error(result, "bucket {} of {}: the hook failed: {}", index, buckets,
                    words.empty() ? uniGetErrorString(result) : words);
}

void Launcher::note_completion(void* progress, uniResult_t status) {
  auto* of = static_cast<Progress*>(progress);
  of->result = status;
  of->completion_ns = now_ns();
}

bool Launcher::wait(int bucket) {
  const Progress& progress = progress_[static_cast<size_t>(bucket)];
  // No limit of its own: what is on the stream ends by the communicator's deadline.
  const uniResult_t waited = uniEventSynchronize(progress.event, -1);
  return waited == uniSuccess && progress.result == uniSuccess;
}

Status Launcher::drain() {
  return called(uniStreamSynchronize(stream_));
}

int64_t Launcher::last_completion_ns() const {
  return progress_count_ == 0 ? 0 : progress_[progress_count_ - 1].completion_ns;
}

}  // namespace unisono::ddp
