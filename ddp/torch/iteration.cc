#include "ddp/torch/iteration.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

namespace unisono::ddp {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Every node from which a gradient of the outputs may come.
std::unordered_set<const Node*> reachable(const std::vector<torch::Tensor>& outputs) {
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> open;
  const auto visit = [&](const Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const torch::Tensor& output : outputs) {
    if (output.defined() && output.requires_grad()) {
      visit(torch::autograd::impl::gradient_edge(output).function.get());
    }
  }
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return seen;
}

}  // namespace

Iteration::Iteration(Gradients& gradients, const DistributedDataParallelOptions& options)
    : gradients_(gradients),
      find_unused_(options.find_unused_parameters),
      static_graph_(options.static_graph),
      hooked_(options.hook != nullptr),
      accumulators_(static_cast<size_t>(gradients.size())),
      ready_(static_cast<size_t>(gradients.size())),
      pending_(static_cast<size_t>(gradients.size())),
      static_unused_(static_cast<size_t>(gradients.size())) {
  renew_hooks();
}

Iteration::~Iteration() {
  for (const Accumulator& accumulator : accumulators_) {
    accumulator.node->del_post_hook(accumulator.hook);
  }
}

// A parameter gets another accumulator when its data are replaced, as torch::nn::Module::load does.
void Iteration::renew_hooks() {
  for (int i = 0; i < gradients_.size(); i++) {
    gradients_.require_unchanged(i);
    Accumulator& accumulator = accumulators_[static_cast<size_t>(i)];
    std::shared_ptr<Node> node = torch::autograd::impl::grad_accumulator(gradients_.parameter(i));
    if (node == accumulator.node) continue;
    if (accumulator.node != nullptr) accumulator.node->del_post_hook(accumulator.hook);
    const auto hook = [this, i](const variable_list& outputs, const variable_list&) {
      on_gradient(i);
      return outputs;
    };
    accumulator.hook =
        node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(hook));
    accumulator.node = std::move(node);
  }
}

void Iteration::must_be_over() {
  if (phase_ != Phase::kBackward) return;
  // It refuses, and knows the words.
  check(uniReducerBeginForward(gradients_.reducer()), "forward");
}

void Iteration::expect_accumulation() {
  must_be_over();
  renew_hooks();
  phase_ = Phase::kAccumulation;
}

void Iteration::expect_synchronization(const std::vector<torch::Tensor>& outputs) {
  must_be_over();
  renew_hooks();
  unused_.clear();
  if (looks_at_outputs()) {
    const auto used = reachable(outputs);
    for (size_t i = 0; i < accumulators_.size(); i++) {
      if (!used.contains(accumulators_[i].node.get())) unused_.push_back(static_cast<int>(i));
    }
  }
  phase_ = Phase::kExpected;
}

void Iteration::on_gradient(int index) {
  switch (phase_.load()) {
    case Phase::kIdle:  // the module was used without us
      return;
    case Phase::kAccumulation:
      pending_[static_cast<size_t>(index)] = true;
      return;
    case Phase::kExpected: {
      const std::lock_guard lock(begin_mutex_);
      if (phase_ == Phase::kExpected) begin();
      break;
    }
    case Phase::kBackward:
      break;
  }
  deliver(index);
}

// Not at forward's end: outputs need not be used for a backward at all.
void Iteration::begin() {
  check(uniReducerBeginBackward(gradients_.reducer(), 1), "backward");
  for (auto& ready : ready_) ready = false;
  error_.clear();
  phase_ = Phase::kBackward;
  torch::autograd::Engine::get_default_engine().queue_callback([this] { finish(); });
  for (const int index : unused_) {
    if (pending_[static_cast<size_t>(index)]) {
      deliver(index);
    } else {
      note(uniReducerMarkUnused(gradients_.reducer(), index));
    }
  }
}

void Iteration::deliver(int index) {
  ready_[static_cast<size_t>(index)] = true;
  note(gradients_.deliver(index));
}

// For complete() to throw. Thrown on the spot it would keep autograd from calling finish(), and our
// peers would wait for us until their deadline.
void Iteration::note(uniResult_t result) {
  if (result == uniSuccess) return;
  const std::string words = uniGetLastError(nullptr);
  const std::lock_guard lock(error_mutex_);
  if (error_.empty()) error_ = words;
}

void Iteration::finish() {
  for (int i = 0; i < gradients_.size(); i++) {
    const auto at = static_cast<size_t>(i);
    // Used in accumulation only: its gradient has been final for long.
    if (!ready_[at] && pending_[at]) deliver(i);
  }
  complete();
  for (int i = 0; i < gradients_.size(); i++) {
    int used = 1;
    if (find_unused_ || static_graph_) {
      check(uniReducerUsed(gradients_.reducer(), i, &used), "who used a parameter");
    }
    if (used != 0) gradients_.receive(i, hooked_ ? 1 : factor_);
    pending_[static_cast<size_t>(i)] = false;
  }
}

void Iteration::complete() {
  phase_ = Phase::kIdle;
  const uniResult_t result = uniReducerFinish(gradients_.reducer());
  if (!error_.empty()) {
    gradients_.abort();  // if it has not been: what follows from our error may look like none
    TORCH_CHECK(false, "unisono: backward: ", error_);
  }
  check(result, "backward");
  gradients_.find_views();
  if (static_graph_ && !static_known_) {
    static_known_ = true;
    for (size_t i = 0; i < ready_.size(); i++) static_unused_[i] = !ready_[i];
  }
}

void Iteration::shadow() {
  must_be_over();
  gradients_.leave_views();
  check(uniReducerBeginBackward(gradients_.reducer(), 1), "a backward of zeros");
  error_.clear();
  for (size_t i = 0; i < ready_.size(); i++) {
    ready_[i] = !find_unused_ && !static_unused_[i];
    if (ready_[i]) note(gradients_.deliver_zeros(static_cast<int>(i)));
  }
  complete();
}

}  // namespace unisono::ddp
