#include "ddp/torch/workers.h"

#include <utility>

namespace unisono::ddp {

Workers::Workers(size_t count, std::function<void(size_t)> start)
    : start_(std::move(start)), failures_(count) {
  for (size_t i = 0; i < count; i++) threads_.emplace_back([this, i] { loop(i); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::run(const std::function<void(size_t)>& task) {
  std::unique_lock lock(mutex_);
  task_ = &task;
  busy_ = count();
  turn_++;
  for (std::exception_ptr& failure : failures_) failure = nullptr;
  changed_.notify_all();
  changed_.wait(lock, [&] { return busy_ == 0; });
  for (const std::exception_ptr& failure : failures_) {
    if (failure != nullptr) std::rethrow_exception(failure);
  }
}

void Workers::loop(size_t index) {
  start_(index);
  std::unique_lock lock(mutex_);
  for (size_t done = 0;; done++) {
    changed_.wait(lock, [&] { return stopping_ || turn_ > done; });
    if (stopping_) return;
    const std::function<void(size_t)>& task = *task_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      task(index);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failures_[index] = failure;
    if (--busy_ == 0) changed_.notify_all();
  }
}

}  // namespace unisono::ddp
