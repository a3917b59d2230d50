// The end of an iteration: what is left to launch, the used map, the way back into the gradients,
// the rebuilding of buckets, and what happens after an error.
#include <cstring>

#include "ddp/reducer/agreement.h"
#include "ddp/reducer/messages.h"
#include "ddp/reducer/reducer.h"

namespace unisono::ddp {

Status Reducer::finish() {
  std::unique_lock lock(gate_);
  if (phase_ != Phase::kBackward) {
    return error(uniInvalidUsage, "uniReducerFinish on rank {} without uniReducerBeginBackward",
                 rank_);
  }
  phase_ = Phase::kFinishing;
  const size_t map_bytes = sends_map() ? used_.wire_bytes() : 0;
  Status status = marks_.error();
  if (status.ok() && sync_) status = resolve_unmarked();
  const std::vector<int> order = marks_.order();
  ready_order_.assign(order.begin(), order.end());
  // Who asks for statistics need not wait for the peers.
  lock.unlock();
  if (status.ok() && sync_) status = reduce();
  lock.lock();
  if (status.ok() && sync_) {
    settle_unused();
    status = rebuild();
  }
  if (!status.ok()) {
    give_up();
  } else if (sync_) {
    statistics_.end(launcher_.first_launch_ns(), launcher_.last_completion_ns(),
                    launcher_.wire_bytes() + map_bytes);
  } else {
    statistics_.end_accumulation();
  }
  phase_ = Phase::kIdle;
  return status;
}

// The static graph is known once the first synchronised iteration is over.
bool Reducer::sends_map() const {
  return settings_.static_graph ? never_used_.empty() : settings_.find_unused;
}

Status Reducer::resolve_unmarked() {
  const std::vector<int> unmarked = marks_.unmarked();
  std::vector<int> missing;
  for (const int index : unmarked) {
    // What was used in an iteration without synchronisation only has its sum in the gradient.
    if (!used_.used_here(index) && !sends_map()) missing.push_back(index);
  }
  if (!missing.empty()) return name_missing(missing);
  for (const int index : unmarked) DDP_TRY(contribute(index));
  return launcher_.error();
}

Status Reducer::name_missing(const std::vector<int>& missing) const {
  std::string words =
      fmt::format("on rank {} {} {} never marked ready", rank_,
                  parameter_list(parameters_, missing), missing.size() == 1 ? "was" : "were");
  words += settings_.static_graph ? ", but took part in the first iteration of a static graph"
                                  : "; config.find_unused allows that";
  // A caller who stopped marking because a launch had failed shall see that failure.
  const Status& launch = launcher_.error();
  if (launch.ok()) return {uniInvalidUsage, "uniReducerFinish: " + words};
  return error(launch.result() == uniAborted ? uniInvalidUsage : launch.result(),
               "uniReducerFinish: {} (and before: {})", words, launch.message());
}

Status Reducer::reduce() {
  DDP_TRY(launcher_.error());
  if (sends_map()) DDP_TRY(used_.launch(comm_, launcher_.stream()));
  const bool rebuilds = settings_.rebuilds() && !rebuilt_;
  if (rebuilds) {
    agreed_order_ = ready_order_;
    DDP_TRY(called(uniBroadcast(agreed_order_.data(), agreed_order_.data(), agreed_order_.size(),
                                uniInt32, 0, comm_, launcher_.stream())));
  }
  // Copying goes on while later buckets are on their way.
  for (size_t i = 0; i < layout_.buckets.size() && !settings_.bucket_views; i++) {
    if (!launcher_.wait(static_cast<int>(i))) break;
    copy_out(layout_.buckets[i]);
  }
  DDP_TRY(launcher_.drain());
  if (rebuilds && !is_permutation_of_indices(agreed_order_)) {
    return error(uniInternalError, "rank 0 sent an order of readiness that is no permutation");
  }
  return {};
}

void Reducer::copy_out(const Bucket& bucket) {
  if (stays_in_place()) return;
  for (const int index : bucket.parameters) {
    const Parameter& to = parameter(index);
    if (!used_.used_here(index) || to.count == 0) continue;  // settle_unused()
    std::memcpy(to.grad, slot(index), to.bytes());
  }
}

void Reducer::settle_unused() {
  for (int i = 0; i < count(); i++) {
    if (used_.used_here(i)) continue;
    const Parameter& to = parameter(i);
    const bool used_anywhere = used_.used_anywhere(i);
    if (settings_.bucket_views) {
      if (used_anywhere) kept_.forget(i);
      kept_.restore(i, slot(i), to.bytes());
    } else if (used_anywhere && to.count != 0) {
      std::memcpy(to.grad, slot(i), to.bytes());
    }
  }
  if (settings_.static_graph && never_used_.empty()) never_used_ = used_.unused_here();
  used_.forget();
}

Status Reducer::rebuild() {
  if (!settings_.rebuilds() || rebuilt_) return {};
  rebuilt_ = true;
  const std::vector<int> order(agreed_order_.begin(), agreed_order_.end());
  const auto assigned =
      assign_buckets(parameters_, order, settings_.bucket_bytes, settings_.first_bucket_bytes);
  if (!settings_.bucket_views) return use_layout(assigned);
  // Gradients live in the buckets: they move.
  const Layout old_layout = layout_;
  std::unique_ptr<Arena> old_arena;
  DDP_TRY(Arena::create(comm_, layout_bytes_at_most(parameters_), &old_arena));
  std::swap(arena_, old_arena);
  DDP_TRY(use_layout(assigned));
  for (int i = 0; i < count(); i++) {
    const std::byte* from = old_arena->data() + old_layout.places[static_cast<size_t>(i)].offset;
    std::memcpy(slot(i), from, parameter(i).bytes());
  }
  return {};
}

void Reducer::give_up() {
  (void)uniCommAbort(comm_);
  (void)launcher_.drain();
  for (int i = 0; i < count() && settings_.bucket_views; i++) {
    kept_.restore(i, slot(i), parameter(i).bytes());
  }
}

}  // namespace unisono::ddp
