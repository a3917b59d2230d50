// A thread for each replica, kept between calls: threads of autograd and OpenMP are made per
// thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace unisono::ddp {

class Workers {
 public:
  // start(r) runs first on thread r.
  Workers(size_t count, std::function<void(size_t)> start);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  size_t count() const { return threads_.size(); }
  // task(r) on thread r, for all r at once; returns when all are done, and throws what the first of
  // them has thrown. One caller at a time; a task may not call it.
  void run(const std::function<void(size_t)>& task);

 private:
  void loop(size_t index);

  const std::function<void(size_t)> start_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(size_t)>* task_ = nullptr;
  size_t turn_ = 0;  // how many tasks there have been
  size_t busy_ = 0;
  bool stopping_ = false;
  std::vector<std::exception_ptr> failures_;
  std::vector<std::thread> threads_;
};

}  // namespace unisono::ddp
