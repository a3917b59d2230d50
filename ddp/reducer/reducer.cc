// Creation, marking, and what can be asked. Finishing is in reducer_finish.cc.
#include "ddp/reducer/reducer.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ddp/reducer/agreement.h"
#include "ddp/reducer/averaging.h"
#include "ddp/reducer/messages.h"

namespace unisono::ddp {

Status Reducer::create(uniComm_t comm, std::vector<Parameter> parameters, const Settings& settings,
                       std::unique_ptr<Reducer>* reducer) {
  std::unique_ptr<Reducer> made(new Reducer(comm, std::move(parameters), settings));
  DDP_TRY(made->open());
  *reducer = std::move(made);
  return {};
}

Reducer::Reducer(uniComm_t comm, std::vector<Parameter> parameters, const Settings& settings)
    : comm_(comm),
      parameters_(std::move(parameters)),
      settings_(settings),
      hook_(settings.hook),
      hook_arg_(settings.hook_arg),
      marks_(parameters_),
      used_(parameters_.size()),
      kept_(parameters_.size()),
      launcher_(comm) {}

Status Reducer::open() {
  DDP_TRY(called(uniCommCount(comm_, &ranks_)));
  DDP_TRY(called(uniCommUserRank(comm_, &rank_)));
  DDP_TRY(launcher_.open());
  DDP_TRY(verify_agreement(comm_, launcher_.stream(), parameters_, settings_));
  DDP_TRY(Arena::create(comm_, layout_bytes_at_most(parameters_), &arena_));
  // Until the order of readiness is known: the last parameters' gradients come first.
  std::vector<int> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), 0);
  const bool provisional = settings_.rebuilds();
  DDP_TRY(
      use_layout(assign_buckets(parameters_, order, provisional ? SIZE_MAX : settings_.bucket_bytes,
                                provisional ? SIZE_MAX : settings_.first_bucket_bytes)));
  if (!settings_.bucket_views) return {};
  for (int i = 0; i < count(); i++) {
    if (parameter(i).grad != nullptr) std::memcpy(slot(i), parameter(i).grad, parameter(i).bytes());
  }
  return {};
}

Status Reducer::use_layout(const std::vector<std::vector<int>>& assigned) {
  layout_ = make_layout(parameters_, assigned);
  return launcher_.set_buckets(&layout_, arena_->data());
}

Reducer::~Reducer() {
  const std::unique_lock lock(gate_);
  // Peers wait, or will, for buckets that nobody will launch any more.
  if (phase_ != Phase::kIdle && sync_) (void)uniCommAbort(comm_);
}

Status Reducer::must_be_idle(const char* call) const {
  if (phase_ == Phase::kIdle) return {};
  const std::vector<int> unmarked = marks_.unmarked();
  if (phase_ == Phase::kBackward && !unmarked.empty()) {
    return error(uniInvalidUsage,
                 "{} on rank {} before uniReducerFinish of the last iteration, in which {} {} not "
                 "ready",
                 call, rank_, parameter_list(parameters_, unmarked),
                 unmarked.size() == 1 ? "is" : "are");
  }
  return error(uniInvalidUsage,
               "{} on rank {} before uniReducerFinish of the last iteration, in which all "
               "parameters are ready",
               call, rank_);
}

Status Reducer::gradient(int index, void** grad) {
  const std::shared_lock lock(gate_);
  *grad = settings_.bucket_views ? slot(index) : parameter(index).grad;
  return {};
}

Status Reducer::set_gradient(int index, void* grad) {
  const std::unique_lock lock(gate_);
  if (settings_.bucket_views) {
    return error(uniInvalidUsage,
                 "uniReducerSetGradient: with bucket_views gradients lie in the "
                 "reducer's memory");
  }
  DDP_TRY(must_be_idle("uniReducerSetGradient"));
  parameters_[static_cast<size_t>(index)].grad = grad;
  return {};
}

Status Reducer::begin_forward() {
  const std::unique_lock lock(gate_);
  DDP_TRY(must_be_idle("uniReducerBeginForward"));
  statistics_.begin_forward();
  return {};
}

Status Reducer::begin_backward(bool sync) {
  const std::unique_lock lock(gate_);
  DDP_TRY(must_be_idle("uniReducerBeginBackward"));
  phase_ = Phase::kBackward;
  sync_ = sync;
  statistics_.begin_backward();
  marks_.begin(never_used_);
  if (!sync) return {};
  hook_now_ = hook_;
  launcher_.begin(hook_, hook_arg_);
  for (size_t i = 0; i < never_used_.size(); i++) {
    if (never_used_[i] != 0) DDP_TRY(contribute(static_cast<int>(i)));
  }
  return {};
}

Status Reducer::mark(int index, Mark mark) {
  const std::shared_lock lock(gate_);
  const char* call = mark == Mark::kReady ? "uniReducerMarkReady" : "uniReducerMarkUnused";
  if (phase_ != Phase::kBackward) {
    return error(uniInvalidUsage,
                 "{}: {} on rank {} outside of uniReducerBeginBackward to "
                 "uniReducerFinish",
                 call, parameter_label(parameters_, index), rank_);
  }
  if (mark == Mark::kUnused && !settings_.may_be_unused()) {
    return error(uniInvalidUsage, "{}: {} on rank {} needs config.find_unused", call,
                 parameter_label(parameters_, index), rank_);
  }
  const bool graph_is_known = !never_used_.empty();
  if (mark == Mark::kUnused && graph_is_known && never_used_[static_cast<size_t>(index)] == 0 &&
      !used_.used_here(index)) {
    return error(uniInvalidUsage,
                 "{}: {} on rank {} was used in the first iteration, and the "
                 "graph is said to be static",
                 call, parameter_label(parameters_, index), rank_);
  }
  bool is_first = false;
  DDP_TRY(marks_.set(index, mark, &is_first));
  if (!is_first) return {};
  statistics_.note_gradient();
  if (mark == Mark::kReady) used_.note(index);
  return sync_ ? contribute(index) : Status();
}

Status Reducer::contribute(int index) {
  if (!stays_in_place()) fill(index);
  return launcher_.parameter_done(layout_.places[static_cast<size_t>(index)].bucket);
}

void Reducer::fill(int index) {
  const Parameter& of = parameter(index);
  std::byte* to = slot(index);
  const void* from = settings_.bucket_views ? to : of.grad;
  if (!used_.used_here(index)) {
    if (settings_.bucket_views) {
      kept_.keep_and_clear(index, to, of.bytes());
    } else {
      std::memset(to, 0, of.bytes());
    }
  } else if (hook_now_ == nullptr && ranks_ > 1 && is_divided_before_sum(of.type)) {
    scale(to, from, of.count, of.type, 1.0 / ranks_);
  } else if (from != to && of.count != 0) {
    std::memcpy(to, from, of.bytes());
  }
}

Status Reducer::used(int index, int* used) {
  const std::shared_lock lock(gate_);
  DDP_TRY(must_be_idle("uniReducerUsed"));
  if (statistics_.iterations() == 0) {
    return error(uniInvalidUsage, "uniReducerUsed: no synchronised iteration has been finished");
  }
  *used = used_.used_anywhere(index) ? 1 : 0;
  return {};
}

Status Reducer::set_hook(uniBucketHook_t hook, void* arg) {
  const std::unique_lock lock(gate_);
  hook_ = hook;
  hook_arg_ = arg;
  return {};
}

void Reducer::stats(uniReducerStats_t* stats) {
  const std::shared_lock lock(gate_);
  statistics_.write(stats);
  stats->gradient_bytes = 0;
  for (const Parameter& of : parameters_) stats->gradient_bytes += of.bytes();
  stats->memory_bytes = layout_.bytes;
  stats->parameters = count();
  stats->buckets = static_cast<int>(layout_.buckets.size());
  stats->rebuilt = rebuilt_ ? 1 : 0;
  stats->unused = phase_ == Phase::kFinishing ? 0 : used_.unused_everywhere();
}

Status Reducer::bucket_size(int bucket, size_t* bytes, int* parameters) {
  const std::shared_lock lock(gate_);
  const auto buckets = static_cast<int>(layout_.buckets.size());
  if (bucket < 0 || bucket >= buckets) {
    return error(uniInvalidArgument, "bucket: {} is not between 0 and {}", bucket, buckets - 1);
  }
  const Bucket& of = layout_.buckets[static_cast<size_t>(bucket)];
  *bytes = of.bytes();
  *parameters = static_cast<int>(of.parameters.size());
  return {};
}

Status Reducer::ready_order(int* order) {
  const std::shared_lock lock(gate_);
  if (ready_order_.empty()) {
    return error(uniInvalidUsage, "uniReducerReadyOrder: no iteration has been finished");
  }
  std::copy(ready_order_.begin(), ready_order_.end(), order);
  return {};
}

}  // namespace unisono::ddp
