#include "transports/sim/sim_env.h"

#include <pthread.h>

#include <string>

#include "base/check.h"

namespace unisono {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 1u << 20;  // their frames are fatter
#else
constexpr size_t kStackBytes = 256u << 10;
#endif

class SimThread final : public Thread {
 public:
  SimThread(std::shared_ptr<SimScheduler> scheduler, const char* name, std::function<void()> body)
      : scheduler_(std::move(scheduler)), actor_(scheduler_->add_helper()) {
    auto start = std::make_unique<Start>(
        Start{scheduler_, actor_, std::move(body), std::string(name).substr(0, 15)});
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, kStackBytes) == 0);
    // As in std::thread: a machine that cannot make one more thread ends the program, here with a
    // message.
    CHECK(pthread_create(&thread_, &attributes, run, start.get()) == 0);
    start.release();  // NOLINT(bugprone-unused-return-value): the thread owns it now
    pthread_attr_destroy(&attributes);
  }
  ~SimThread() override {
    scheduler_->await_end(*actor_);
    pthread_join(thread_, nullptr);
  }

 private:
  struct Start {
    std::shared_ptr<SimScheduler> scheduler;
    std::shared_ptr<SimActor> actor;
    std::function<void()> body;
    std::string name;
  };
  static void* run(void* argument) {
    std::unique_ptr<Start> start(static_cast<Start*>(argument));
    pthread_setname_np(pthread_self(), start->name.c_str());
    start->scheduler->run_helper(start->actor, start->body);
    return nullptr;
  }

  const std::shared_ptr<SimScheduler> scheduler_;
  const std::shared_ptr<SimActor> actor_;
  pthread_t thread_{};
};

}  // namespace

Status SimWaiter::add_fd(int fd, bool) {
  return error(Code::kInvalidUsage, "descriptor {} cannot end a wait in a simulated world", fd);
}

void SimEnv::wait(std::span<Waiter* const> waiters, int64_t deadline_ns) {
  std::vector<SimSignal*> signals;
  signals.reserve(waiters.size());
  for (Waiter* waiter : waiters) {
    auto* ours = dynamic_cast<SimWaiter*>(waiter);
    CHECK(ours != nullptr);
    signals.push_back(&ours->signal());
  }
  scheduler_->wait(signals, deadline_ns);
}

std::unique_ptr<Thread> SimEnv::start_thread(const char* name, std::function<void()> body) {
  return std::make_unique<SimThread>(scheduler_, name, std::move(body));
}

void SimEnv::enter(int rank) {
  const bool member = rank >= 0 && static_cast<size_t>(rank) < members_.size();
  scheduler_->enter(member ? members_[static_cast<size_t>(rank)] : -1);
}

}  // namespace unisono
