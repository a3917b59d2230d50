#include "unisono/torch/distributed_data_parallel.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "ddp/torch/gradients.h"
#include "ddp/torch/iteration.h"
#include "ddp/torch/module_state.h"

namespace unisono::ddp {
namespace {

// What a rank is about to do, told to all before each forward within a Join.
enum Flag : size_t { kHasInput, kSynchronizes, kSendsBuffers, kWasLast, kFlags };
using Flags = std::array<uint8_t, kFlags>;

std::vector<NamedTensor> trainable(const ModuleState& state) {
  std::vector<NamedTensor> chosen;
  for (const NamedTensor& named : state.parameters) {
    if (named.tensor.requires_grad()) chosen.push_back(named);
  }
  return chosen;
}

ModuleState equal_on_all_ranks(const torch::nn::Module& module, uniComm_t comm) {
  ModuleState state = module_state(module);
  verify_alike(state, comm);
  broadcast_tensors(state.tensors(), 0, comm);
  return state;
}

}  // namespace

struct DistributedDataParallelCore::State {
  State(std::shared_ptr<torch::nn::Module> its_module, uniComm_t its_comm,
        const DistributedDataParallelOptions& its_options)
      : module(std::move(its_module)),
        comm(its_comm),
        options(its_options),
        tensors(equal_on_all_ranks(*module, comm)),
        gradients(comm, trainable(tensors), options),
        iteration(gradients, options) {
    check(uniCommCount(comm, &ranks), "the number of ranks");
    check(uniCommUserRank(comm, &rank), "the rank");
  }

  bool will_send_buffers() const {
    return options.broadcast_buffers && follows_synchronized && !tensors.buffers.empty();
  }
  std::vector<Flags> exchange(const Flags& mine) const;
  // How many ranks have input; throws if it is to.
  int require_input(const std::vector<Flags>& all);
  void send_buffers(int root) { broadcast_tensors(tensors.buffer_tensors(), root, comm); }

  const std::shared_ptr<torch::nn::Module> module;
  const uniComm_t comm;
  const DistributedDataParallelOptions options;
  const ModuleState tensors;
  Gradients gradients;
  Iteration iteration;
  int ranks = 0, rank = 0;
  bool synchronize = true;  // no NoSync lives
  bool follows_synchronized =
      true;  // the last forward was one that a synchronised backward follows
  bool joining = false;
  JoinOptions join;
};

std::vector<Flags> DistributedDataParallelCore::State::exchange(const Flags& mine) const {
  std::vector<Flags> all(static_cast<size_t>(ranks));
  check(uniAllGather(mine.data(), all.data(), mine.size(), uniUint8, comm, nullptr),
        "who has input left");
  return all;
}

int DistributedDataParallelCore::State::require_input(const std::vector<Flags>& all) {
  const auto with_input = static_cast<int>(
      std::count_if(all.begin(), all.end(), [](const Flags& of) { return of[kHasInput] != 0; }));
  if (join.throw_on_early_termination && with_input > 0 && with_input < ranks) {
    joining = false;  // there is nobody left to shadow
    TORCH_CHECK(false, "unisono: ", ranks - with_input, " of ", ranks,
                " ranks have no input left, and throw_on_early_termination is set");
  }
  if (!join.divide_by_initial_world_size && with_input > 0) {
    iteration.set_factor(static_cast<double>(ranks) / with_input);
  }
  return with_input;
}

namespace {

// The highest rank with the flag; -1: none.
int highest(const std::vector<Flags>& all, Flag flag) {
  for (int rank = static_cast<int>(all.size()) - 1; rank >= 0; rank--) {
    if (all[static_cast<size_t>(rank)][flag] != 0) return rank;
  }
  return -1;
}

}  // namespace

DistributedDataParallelCore::DistributedDataParallelCore(
    std::shared_ptr<torch::nn::Module> module, uniComm_t comm,
    const DistributedDataParallelOptions& options) {
  TORCH_CHECK(module != nullptr, "unisono: module: there is none");
  TORCH_CHECK(comm != nullptr, "unisono: comm: there is none");
  state_ = std::make_unique<State>(std::move(module), comm, options);
}

DistributedDataParallelCore::~DistributedDataParallelCore() = default;

void DistributedDataParallelCore::before_forward() {
  State& state = *state_;
  const bool synchronizes = torch::GradMode::is_enabled() && state.synchronize;
  if (synchronizes) check(uniReducerBeginForward(state.gradients.reducer()), "forward");
  int root = 0;
  if (state.joining) {
    const auto all = state.exchange({1, synchronizes, state.will_send_buffers(), 0});
    state.require_input(all);
    root = highest(all, kHasInput);
  }
  if (state.will_send_buffers()) state.send_buffers(root);
}

void DistributedDataParallelCore::after_forward(const std::vector<torch::Tensor>& outputs) {
  State& state = *state_;
  state.follows_synchronized = torch::GradMode::is_enabled() && state.synchronize;
  if (state.follows_synchronized) {
    state.iteration.expect_synchronization(outputs);
  } else if (torch::GradMode::is_enabled()) {
    state.iteration.expect_accumulation();
  }
}

bool DistributedDataParallelCore::wants_outputs() const {
  return torch::GradMode::is_enabled() && state_->synchronize &&
         state_->iteration.looks_at_outputs();
}

bool DistributedDataParallelCore::set_synchronize(bool synchronize) {
  return std::exchange(state_->synchronize, synchronize);
}

void DistributedDataParallelCore::begin_join(const JoinOptions& options) {
  TORCH_CHECK(!state_->joining, "unisono: a Join within a Join of the same module");
  state_->joining = true;
  state_->join = options;
}

void DistributedDataParallelCore::finish_join() {
  State& state = *state_;
  if (!state.joining) return;  // it has thrown for want of input
  bool was_last = true;
  while (true) {
    const auto all = state.exchange({0, 0, 0, 0});
    if (state.require_input(all) == 0) break;
    was_last = false;
    if (highest(all, kSendsBuffers) >= 0) state.send_buffers(highest(all, kHasInput));
    if (highest(all, kSynchronizes) >= 0) state.iteration.shadow();
  }
  const auto all = state.exchange({0, 0, 0, was_last});
  broadcast_tensors(state.tensors.tensors(), highest(all, kWasLast), state.comm);
  state.iteration.set_factor(1);
  state.joining = false;
}

void DistributedDataParallelCore::abandon_join() {
  // Not for throw_on_early_termination: all ranks have left by then.
  if (!std::exchange(state_->joining, false)) return;
  (void)uniCommAbort(state_->comm);
}

void DistributedDataParallelCore::set_hook(uniBucketHook_t hook, void* arg) {
  check(uniReducerSetHook(state_->gradients.reducer(), hook, arg), "the hook");
  state_->iteration.set_hooked(hook != nullptr);
}

uniReducerStats_t DistributedDataParallelCore::stats() const {
  uniReducerStats_t stats = {};
  stats.size = sizeof stats;
  check(uniReducerStats(reducer(), &stats), "statistics");
  return stats;
}

uniReducer_t DistributedDataParallelCore::reducer() const {
  return state_->gradients.reducer();
}

Join::Join(DistributedDataParallelCore& core, const JoinOptions& options)
    : core_(core), exceptions_(std::uncaught_exceptions()) {
  core_.begin_join(options);
}

Join::~Join() noexcept(false) {
  if (finished_) return;
  if (std::uncaught_exceptions() > exceptions_) {
    core_.abandon_join();
  } else {
    finish();
  }
}

void Join::finish() {
  finished_ = true;
  core_.finish_join();
}

}  // namespace unisono::ddp
