// The reducer: an iteration's state machine over marks, buckets, launcher and used map. What each
// call means is said in unisono/ddp.h.
#pragma once

#include <memory>
#include <shared_mutex>
#include <vector>

#include "ddp/reducer/arena.h"
#include "ddp/reducer/borrowed_comm.h"
#include "ddp/reducer/kept_gradients.h"
#include "ddp/reducer/launcher.h"
#include "ddp/reducer/layout.h"
#include "ddp/reducer/marks.h"
#include "ddp/reducer/settings.h"
#include "ddp/reducer/statistics.h"
#include "ddp/reducer/used_map.h"

namespace unisono::ddp {

// Arguments are checked by the caller (c_api.cc), but for states and what depends on the settings.
class Reducer {
 public:
  // Collective; blocks. comm is borrowed for the reducer's life.
  static Status create(uniComm_t comm, std::vector<Parameter> parameters, const Settings& settings,
                       std::unique_ptr<Reducer>* reducer);
  // In mid-iteration: aborts the communicator. Waits for what is under way.
  ~Reducer();
  Reducer(const Reducer&) = delete;

  int count() const { return static_cast<int>(parameters_.size()); }
  bool is_empty(int index) const { return parameter(index).count == 0; }
  Status gradient(int parameter, void** grad);
  Status set_gradient(int parameter, void* grad);
  Status begin_forward();
  Status begin_backward(bool sync);
  Status mark(int parameter, Mark mark);  // Any thread.
  Status finish();
  Status used(int parameter, int* used);
  Status set_hook(uniBucketHook_t hook, void* arg);
  void stats(uniReducerStats_t* stats);
  Status bucket_size(int bucket, size_t* bytes, int* parameters);
  Status ready_order(int* order);

 private:
  enum class Phase { kIdle, kBackward, kFinishing };

  Reducer(uniComm_t comm, std::vector<Parameter> parameters, const Settings& settings);
  Status open();
  Status use_layout(const std::vector<std::vector<int>>& assigned);
  Status must_be_idle(const char* call) const;
  const Parameter& parameter(int index) const { return parameters_[static_cast<size_t>(index)]; }
  std::byte* slot(int index) const {
    return arena_->data() + layout_.places[static_cast<size_t>(index)].offset;
  }
  // The parameter's part of the sum is in its bucket, which may then leave.
  Status contribute(int index);
  void fill(int index);

  // Parts of finish(), for a synchronised iteration.
  Status resolve_unmarked();
  Status name_missing(const std::vector<int>& missing) const;
  Status reduce();
  void copy_out(const Bucket& bucket);
  void settle_unused();
  Status rebuild();
  void give_up();
  bool sends_map() const;
  // One rank's average is its gradient: nothing has to go through the buckets.
  bool stays_in_place() const {
    return ranks_ == 1 && hook_now_ == nullptr && !settings_.bucket_views;
  }

  const BorrowedComm comm_;
  std::vector<Parameter> parameters_;
  const Settings settings_;
  int ranks_ = 0, rank_ = 0;

  // Shared by those who mark, exclusive for those who change what is below.
  std::shared_mutex gate_;
  Phase phase_ = Phase::kIdle;
  bool sync_ = true;
  bool rebuilt_ = false;
  uniBucketHook_t hook_;  // Of the next iteration.
  void* hook_arg_;
  uniBucketHook_t hook_now_ = nullptr;  // Of this one.
  std::vector<uint8_t> never_used_;     // Of the static graph, once it is known.
  std::vector<int32_t> ready_order_;    // Of the last iteration; empty before.
  std::vector<int32_t> agreed_order_;   // Rank 0's.

  Layout layout_;
  Marks marks_;
  UsedMap used_;
  KeptGradients kept_;
  Statistics statistics_;
  std::unique_ptr<Arena> arena_;
  Launcher launcher_;  // Last: its stream is done before the memory goes.
};

}  // namespace unisono::ddp
