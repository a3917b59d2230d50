#include "comm/stream.h"

#include "comm/communicator.h"
#include "comm/driver.h"

namespace unisono {
namespace {

// Tells a simulated world that this thread takes part for the duration of a call.
class InWorld {
 public:
  InWorld(Env& env, int32_t rank) : env_(env), rank_(rank) { env_.enter(rank_); }
  ~InWorld() { env_.leave(rank_); }
  InWorld(const InWorld&) = delete;

 private:
  Env& env_;
  int32_t rank_;
};

}  // namespace

uint64_t Event::next_record(Env& env, int32_t rank) {
  const std::lock_guard lock(mutex_);
  env_ = &env;
  rank_ = rank;
  return ++recorded_;
}

void Event::reach(uint64_t record) {
  const std::lock_guard lock(mutex_);
  reached_ = std::max(reached_, record);
  for (Waiter* waiter : waiters_) waiter->notify();
}

uint64_t Event::last_record() const {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

bool Event::reached(uint64_t record) const {
  const std::lock_guard lock(mutex_);
  return reached_ >= record;
}

bool Event::wait(uint64_t record, int64_t timeout_ms) {
  Env* env = nullptr;
  int32_t rank = -1;
  {
    const std::lock_guard lock(mutex_);
    if (reached_ >= record) return true;
    env = env_;
    rank = rank_;
  }
  const InWorld in_world(*env, rank);
  const std::unique_ptr<Waiter> waiter = env->make_waiter();
  const int64_t deadline_ns = timeout_ms < 0 ? kNeverNs : env->now_ns() + timeout_ms * 1'000'000;
  Waiter* const list[] = {waiter.get()};
  std::unique_lock lock(mutex_);
  waiters_.push_back(waiter.get());
  while (reached_ < record && env->now_ns() < deadline_ns) {
    lock.unlock();
    env->wait(list, deadline_ns);
    lock.lock();
  }
  std::erase(waiters_, waiter.get());
  return reached_ >= record;
}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (waiter_) waiter_->notify();
  }
  if (!thread_) return;
  const InWorld in_world(*env_, rank_);
  thread_.reset();
}

Status Stream::bind(Env& env, int32_t rank) {
  if (env_ != nullptr && env_ != &env) {
    return error(Code::kInvalidUsage,
                 "stream: its earlier work belongs to another world (machine or simulation)");
  }
  if (env_ != nullptr) return {};
  env_ = &env;
  rank_ = rank;
  waiter_ = env.make_waiter();
  thread_ = env.start_thread("uni-stream", [this] { run(); });
  return {};
}

Status Stream::attach(const Communicator& communicator) {
  const std::lock_guard lock(mutex_);
  return bind(communicator.env(), communicator.rank());
}

Status Stream::enqueue(StreamWork work) {
  const std::lock_guard lock(mutex_);
  if (!work.operations.empty()) {
    const Communicator& comm = work.operations.front()->communicator();
    TRY(bind(comm.env(), comm.rank()));
  } else {
    TRY(bind(env_ == nullptr ? real_env() : *env_, rank_));
  }
  queue_.push_back(std::move(work));
  queued_++;
  waiter_->notify();
  return {};
}

Status Stream::record(const std::shared_ptr<Event>& event) {
  StreamWork work;
  work.record = event;
  {
    const std::lock_guard lock(mutex_);
    work.event_record = event->next_record(env_ == nullptr ? real_env() : *env_, rank_);
  }
  return enqueue(std::move(work));
}

Status Stream::synchronize() {
  std::unique_lock lock(mutex_);
  const uint64_t target = queued_;
  if (done_ < target) {
    lock.unlock();
    const InWorld in_world(*env_, rank_);
    const std::unique_ptr<Waiter> waiter = env_->make_waiter();
    Waiter* const list[] = {waiter.get()};
    lock.lock();
    idle_waiters_.push_back(waiter.get());
    while (done_ < target) {
      lock.unlock();
      env_->wait(list, kNeverNs);
      lock.lock();
    }
    std::erase(idle_waiters_, waiter.get());
  }
  return std::exchange(error_, Status());
}

bool Stream::idle() const {
  const std::lock_guard lock(mutex_);
  return done_ == queued_;
}

bool Stream::on_own_thread() const {
  const std::lock_guard lock(mutex_);
  return thread_id_ == std::this_thread::get_id();
}

Status Stream::perform(StreamWork& work) {
  if (!work.operations.empty()) {
    std::vector<Operation*> list;
    for (auto& operation : work.operations) list.push_back(operation.get());
    return drive(list);
  }
  if (work.wait) (void)work.wait->wait(work.event_record, -1);
  if (work.record) work.record->reach(work.event_record);
  if (work.host) {
    Status so_far;
    {
      const std::lock_guard lock(mutex_);
      so_far = error_;
    }
    work.host(so_far);
  }
  return {};
}

void Stream::run() {
  Waiter* const list[] = {waiter_.get()};
  std::unique_lock lock(mutex_);
  thread_id_ = std::this_thread::get_id();
  for (;;) {
    if (queue_.empty()) {
      if (stop_) return;
      lock.unlock();
      env_->wait(list, kNeverNs);
      lock.lock();
      continue;
    }
    StreamWork work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    const Status status = perform(work);
    work = {};
    lock.lock();
    if (error_.ok()) error_ = status;
    done_++;
    for (Waiter* waiter : idle_waiters_) waiter->notify();
  }
}

}  // namespace unisono
