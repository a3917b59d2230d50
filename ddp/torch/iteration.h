// From forward to the end of backward: who calls the reducer, and when. Autograd's side of
// DistributedDataParallel.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ddp/torch/gradients.h"

namespace unisono::ddp {

class Iteration {
 public:
  // gradients is borrowed.
  Iteration(Gradients& gradients, const DistributedDataParallelOptions& options);
  ~Iteration();  // Takes its hooks off the parameters.
  Iteration(const Iteration&) = delete;
  Iteration& operator=(const Iteration&) = delete;

  // What the next backward will do. Throws while the last one, of a synchronised iteration, is not
  // finished: the reducer names what is missing.
  void expect_accumulation();
  void expect_synchronization(const std::vector<torch::Tensor>& outputs);
  // Whole, with zeros: what a rank without input does while others have some.
  void shadow();
  // Averages are multiplied by it from the next finish on.
  void set_factor(double factor) { factor_ = factor; }
  void set_hooked(bool hooked) { hooked_ = hooked; }
  bool looks_at_outputs() const { return find_unused_ && !static_graph_; }

 private:
  enum class Phase { kIdle, kAccumulation, kExpected, kBackward };

  void renew_hooks();           // After a forward: of the accumulators in its graph.
  void on_gradient(int index);  // Any thread of autograd's.
  void begin();
  void finish();  // On the thread of backward, after the last gradient.
  void deliver(int index);
  void note(uniResult_t result);
  void complete();
  void must_be_over();

  Gradients& gradients_;
  const bool find_unused_;
  const bool static_graph_;
  bool hooked_;
  double factor_ = 1;
  struct Accumulator {
    std::shared_ptr<torch::autograd::Node> node;  // autograd itself holds it weakly
    uintptr_t hook = 0;
  };
  std::vector<Accumulator> accumulators_;

  std::mutex begin_mutex_;  // the step from kExpected to kBackward
  std::mutex error_mutex_;
  std::atomic<Phase> phase_{Phase::kIdle};
  std::string error_;                       // the first, of marking
  std::vector<int> unused_;                 // by the graph of the last forward
  std::vector<std::atomic<bool>> ready_;    // in this iteration
  std::vector<std::atomic<bool>> pending_;  // accumulated since the last synchronised iteration
  bool static_known_ = false;
  std::vector<bool> static_unused_;
};

}  // namespace unisono::ddp
