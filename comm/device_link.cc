#include "comm/device_link.h"

#include <algorithm>

#include "base/log.h"
#include "comm/communicator.h"

namespace unisono {
namespace {

constexpr int64_t kStallNs = 1'000'000'000;
constexpr int64_t kShortestPauseNs = 20'000, kLongestPauseNs = 1'000'000;  // of who is waited for
constexpr int64_t kWatchNs = 5'000'000;       // nothing that is watched for is more urgent
constexpr int64_t kLingerNs = 1'000'000'000;  // to wake the watcher costs more than its looks
constexpr int64_t kGraceNs = 2'000'000'000;   // for the device to be through with aborted work

bool in_progress(const Status& status) {
  return status.code() == Code::kInProgress;
}

}  // namespace

void Pace::wait() {
  if (env_.relax(++turns_)) return;
  if (!waiter_) waiter_ = env_.make_waiter();
  pause_ns_ = std::clamp(pause_ns_ * 2, kShortestPauseNs, kLongestPauseNs);
  Waiter* const list[] = {waiter_.get()};
  env_.wait(list, env_.now_ns() + pause_ns_);
}

OnDevice::OnDevice(DeviceRuntime& runtime, int32_t device) : runtime_(runtime) {
  const Result<int32_t> now = runtime.current_device();
  status_ = now.status();
  if (!now.ok() || *now == device) return;
  status_ = runtime.use_device(device);
  if (status_.ok()) before_ = *now;
}

OnDevice::~OnDevice() {
  if (before_ >= 0) (void)runtime_.use_device(before_);
}

std::string DeviceWork::describe() const {
  std::string text = calls.empty() ? first_transfer : unisono::describe(calls.front());
  const size_t more = calls.size() + transfers - 1;
  return more == 0 ? text : text + fmt::format(" and {} more of its group", more);
}

DeviceLink::DeviceLink(Communicator& comm, DeviceRuntime& runtime,
                       std::unique_ptr<CollectiveProvider> provider, int32_t device)
    : comm_(comm), runtime_(runtime), device_(device), provider_(std::move(provider)) {}

Result<std::unique_ptr<DeviceLink>> DeviceLink::create(Communicator& comm, DeviceRuntime& runtime,
                                                       std::unique_ptr<CollectiveProvider> provider,
                                                       int32_t device) {
  std::unique_ptr<DeviceLink> link(new DeviceLink(comm, runtime, std::move(provider), device));
  const OnDevice on_device(runtime, device);
  TRY(on_device.status());
  TRY_ASSIGN(link->own_queue_, runtime.make_queue());
  link->waiter_ = comm.env().make_waiter();
  comm.add_turn_waiter(link->waiter_.get());
  link->thread_ = comm.env().start_thread("uni-device", [raw = link.get()] { raw->watch(); });
  return link;
}

DeviceLink::~DeviceLink() {
  if (thread_) {
    {
      const std::lock_guard lock(mutex_);
      if (provider_) give_up();
      stop_ = true;
      waiter_->notify();
    }
    thread_.reset();
    comm_.remove_turn_waiter(waiter_.get());
  }
  if (own_queue_ == nullptr) return;
  if (Status status = runtime_.destroy_queue(own_queue_); !status.ok()) {
    log_warn("{}: {}", comm_.settings().name, status.message());
  }
}

Result<std::unique_ptr<DeviceMark>> DeviceLink::take_mark() {
  if (spare_marks_.empty()) return runtime_.make_mark();
  auto mark = std::move(spare_marks_.back());
  spare_marks_.pop_back();
  return mark;
}

Result<std::shared_ptr<DeviceWork>> DeviceLink::begin(DeviceQueue queue,
                                                      std::shared_ptr<DeviceStream> stream) {
  auto work = std::make_shared<DeviceWork>();
  work->queue = queue;
  work->stream = std::move(stream);
  work->timeout_ms = comm_.timeout_ms();
  work->since_ns = comm_.env().now_ns();  // until it is launched: it may wait for peers to connect
  work->next_stall_ns = work->since_ns + kStallNs;
  TRY_ASSIGN(const bool capturing, runtime_.capturing(queue));
  if (!capturing) {
    TRY_ASSIGN(work->begin, take_mark());
    TRY_ASSIGN(work->end, take_mark());
    TRY(work->begin->record(queue));
  }
  outstanding_.push_back(work);
  if (asleep_) waiter_->notify();
  return work;
}

Status DeviceLink::launched(DeviceWork& work) {
  if (work.end) TRY(work.end->record(work.queue));
  work.launched = true;
  work.since_ns = 0;
  return {};
}

bool DeviceLink::past(int64_t since_ns, int64_t timeout_ms) const {
  return timeout_ms <= (kNeverNs - since_ns) / 1'000'000 &&
         comm_.env().now_ns() >= since_ns + timeout_ms * 1'000'000;
}

Status DeviceLink::await_progress(const char* what) {
  const int64_t since_ns = comm_.env().now_ns();
  for (Pace pace(comm_.env());; pace.wait()) {
    {
      const std::lock_guard lock(mutex_);
      if (comm_.failed() || !provider_) break;
      const Status status = provider_->progress();
      if (status.ok()) return {};
      if (!in_progress(status)) comm_.fail(status.annotate(what));
    }
    if (past(since_ns, comm_.timeout_ms())) {
      comm_.fail(error(Code::kTimeout, "{} timed out after {} ms", what, comm_.timeout_ms()));
    }
  }
  return comm_.failed() ? comm_.status() : error(Code::kInvalidUsage, "comm: is finalized");
}

Status DeviceLink::await(DeviceWork& work) {
  int64_t failed_since_ns = 0;
  for (Pace pace(comm_.env());; pace.wait()) {
    const std::lock_guard lock(mutex_);
    if (!work.done && work.launched && !comm_.failed()) {
      if (Status status = retire(); !status.ok()) comm_.fail(status);
    }
    if (!work.done) continue;
    if (work.status.ok() || !work.launched || !work.end) return work.status;
    // The buffers go back to the caller: the device must have let go of them.
    if (failed_since_ns == 0) failed_since_ns = comm_.env().now_ns();
    const Result<bool> ended = work.end->reached();
    if (!ended.ok() || *ended || comm_.env().now_ns() > failed_since_ns + kGraceNs) {
      return work.status;
    }
  }
}

void DeviceLink::settle() {
  for (Pace pace(comm_.env());; pace.wait()) {
    const std::lock_guard lock(mutex_);
    if (!comm_.failed()) {
      if (Status status = retire(); !status.ok()) comm_.fail(status);
    }
    if (outstanding_.empty()) return;
  }
}

template <class Body>
Status DeviceLink::with_provider(Body body) {
  const std::lock_guard lock(mutex_);
  if (comm_.failed()) return comm_.status();
  if (!provider_) return error(Code::kInvalidUsage, "comm: is finalized");
  const OnDevice on_device(runtime_, device_);
  Status status = on_device.status();
  if (status.ok()) status = body(*provider_);
  if (!status.ok()) comm_.fail(status);
  return status;
}

Status DeviceLink::finish() {
  settle();
  const auto end = [this]() -> Status {
    TRY(with_provider([](CollectiveProvider& provider) { return provider.finalize(); }));
    TRY(await_progress("to finalize"));
    return with_provider([this](CollectiveProvider& provider) {
      const Status status = provider.destroy();
      provider_.reset();
      return status;
    });
  };
  {
    const std::lock_guard lock(mutex_);
    if (!provider_) return {};
    if (comm_.failed()) {
      give_up();
      return {};
    }
  }
  const Status status = end();
  const std::lock_guard lock(mutex_);
  if (!status.ok()) give_up();
  spare_marks_.clear();
  return status;
}

Result<std::unique_ptr<CollectiveProvider>> DeviceLink::split(int32_t color, int32_t key,
                                                              int32_t ranks, int32_t rank) {
  settle();
  std::unique_ptr<CollectiveProvider> child;
  const auto make = [&]() -> Status {
    TRY(with_provider([&](CollectiveProvider& provider) -> Status {
      TRY_ASSIGN(child, provider.split(color, key, ranks, rank));
      return {};
    }));
    TRY(await_progress("to split"));
    const int64_t since_ns = comm_.env().now_ns();
    for (Pace pace(comm_.env());; pace.wait()) {
      const Status status = child->progress();
      if (!in_progress(status)) return status;
      if (comm_.failed()) return comm_.status();
      if (past(since_ns, comm_.timeout_ms())) {
        return error(Code::kTimeout, "to split timed out after {} ms", comm_.timeout_ms());
      }
    }
  };
  if (Status status = make(); !status.ok()) {
    comm_.fail(status);  // the other ranks wait for this one
    const std::lock_guard lock(mutex_);
    give_up();  // first: the child is still being made from it
    return status;
  }
  if (color < 0) child.reset();
  return child;
}

Status DeviceLink::supports(const DeviceCall& call) {
  const std::lock_guard lock(mutex_);
  return provider_ ? provider_->supports(call) : ok_status();
}

Status DeviceLink::create_op(uint32_t handle, const void* scalar, DataType type) {
  return with_provider(
      [&](CollectiveProvider& provider) { return provider.create_op(handle, scalar, type); });
}

Status DeviceLink::destroy_op(uint32_t handle) {
  return with_provider([&](CollectiveProvider& provider) { return provider.destroy_op(handle); });
}

Status DeviceLink::register_memory(void* pointer, size_t bytes) {
  return with_provider([&](CollectiveProvider& provider) -> Status {
    TRY_ASSIGN(registrations_[pointer], provider.register_memory(pointer, bytes));
    return {};
  });
}

Status DeviceLink::deregister_memory(void* pointer) {
  {
    const std::lock_guard lock(mutex_);
    if (registrations_.count(pointer) == 0) {
      return error(Code::kInvalidArgument, "handle: not registered on this communicator");
    }
  }
  return with_provider([&](CollectiveProvider& provider) {
    void* const handle = registrations_[pointer];
    registrations_.erase(pointer);
    return provider.deregister_memory(handle);
  });
}

// ---- The watcher ----

void DeviceLink::watch() {
  Waiter* const list[] = {waiter_.get()};
  Env& env = comm_.env();
  int64_t busy_ns = env.now_ns();
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const int64_t now = env.now_ns();
    if (look()) busy_ns = now;
    asleep_ = now - busy_ns > kLingerNs || !provider_;
    const int64_t until_ns = asleep_ ? kNeverNs : now + kWatchNs;
    lock.unlock();
    env.wait(list, until_ns);
    lock.lock();
  }
}

bool DeviceLink::look() {
  if (comm_.failed()) {
    give_up();
    return false;
  }
  if (outstanding_.empty() || !provider_) return false;
  Status status = provider_->progress();
  if (status.ok() || in_progress(status)) status = retire();
  if (!status.ok()) {
    comm_.fail(outstanding_.empty() ? status : status.annotate(outstanding_.front()->describe()));
    give_up();
    return false;
  }
  const int64_t now = comm_.env().now_ns();
  for (const auto& work : outstanding_) keep_time(*work, now);
  if (comm_.failed()) give_up();
  return true;
}

// What the device is through with, oldest first. An error: of a mark.
Status DeviceLink::retire() {
  for (auto it = outstanding_.begin(); it != outstanding_.end();) {
    DeviceWork& work = **it;
    bool through = false;
    if (work.launched && !work.end) {
      through = true;
    } else if (work.launched) {
      TRY_ASSIGN(through, work.end->reached());
      if (!through && work.since_ns == 0) {
        TRY_ASSIGN(const bool begun, work.begin->reached());
        if (begun) {
          work.since_ns = comm_.env().now_ns();
          work.next_stall_ns = work.since_ns + kStallNs;
        }
      }
    }
    if (!through) {
      ++it;
      continue;
    }
    work.done = true;
    if (work.end) {
      spare_marks_.push_back(std::move(work.begin));
      spare_marks_.push_back(std::move(work.end));
    }
    it = outstanding_.erase(it);
  }
  return {};
}

void DeviceLink::keep_time(DeviceWork& work, int64_t now_ns) {
  if (work.since_ns == 0 || comm_.failed()) return;
  if (past(work.since_ns, work.timeout_ms)) {
    std::string arrived;
    if (comm_.control() != nullptr && !work.calls.empty()) {
      const auto ranks = comm_.control()->arrived(work.calls.front().sequence);
      arrived = fmt::format("; other ranks known to wait in it: {}",
                            ranks.empty() ? "none" : fmt::format("{}", fmt::join(ranks, ", ")));
    }
    comm_.fail(error(Code::kTimeout, "{} timed out after {} ms{}", work.describe(), work.timeout_ms,
                     arrived));
  } else if (now_ns >= work.next_stall_ns) {
    work.next_stall_ns = now_ns + kStallNs;
    tell(work, now_ns);
  }
}

// Asks control, which compares what the ranks believe to be doing; and whether a rank that is
// needed has left.
void DeviceLink::tell(DeviceWork& work, int64_t) {
  if (comm_.control() == nullptr || work.calls.empty()) return;
  StallReport report;
  report.call = work.calls.front();
  report.last = comm_.sequence();
  comm_.control()->publish_stall(report);
  const Communicator::Gone gone = comm_.gone_for(report);
  if (gone.rank >= 0 && gone.rank == work.gone) {
    comm_.fail(error(Code::kRemoteError, "{}: {} has left the communicator", work.describe(),
                     comm_.peer_name(gone.rank)));
  }
  work.gone = gone.rank;
}

void DeviceLink::give_up() {
  if (!provider_) return;
  const Status status = comm_.failed()
                            ? comm_.status()
                            : error(Code::kInvalidUsage, "the communicator was destroyed");
  // Before the device is let go: whoever then finds the queue empty must find the error too.
  for (const auto& work : outstanding_) {
    const std::string words = work->describe();
    const bool told = status.message().find(words) != std::string::npos;  // by itself
    work->status = told ? status : status.annotate(words);
    if (work->stream) work->stream->note(work->status);
  }
  {
    const OnDevice on_device(runtime_, device_);
    const Status aborted = provider_->abort();
    if (!aborted.ok()) log_warn("{}: {}", comm_.settings().name, aborted.message());
  }
  provider_.reset();
  for (const auto& work : outstanding_) work->done = true;
  outstanding_.clear();
  spare_marks_.clear();
}

}  // namespace unisono
