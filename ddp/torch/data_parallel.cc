#include "unisono/torch/data_parallel.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <utility>

#include "ddp/torch/replicas.h"

namespace unisono::ddp {

struct DataParallelCore::State {
  explicit State(std::vector<std::shared_ptr<torch::nn::Module>> modules)
      : replicas(std::move(modules)) {}
  Replicas replicas;
};

namespace {

using torch::Tensor;
using torch::autograd::variable_list;

std::vector<bool> wanted(const std::vector<Tensor>& tensors) {
  std::vector<bool> wants;
  for (const Tensor& tensor : tensors) wants.push_back(tensor.requires_grad());
  return wants;
}

// In the caller's graph, the one node that stands for all replicas' graphs. Its inputs: forward's
// inputs, then the module's parameters that want a gradient.
class ReplicasBackward : public torch::autograd::Node {
 public:
  ReplicasBackward(std::shared_ptr<DataParallelCore::State> state,
                   std::vector<std::vector<Tensor>> chunks, std::vector<Tensor> outputs,
                   std::vector<bool> wants)
      : state_(std::move(state)),
        chunks_(std::move(chunks)),
        outputs_(std::move(outputs)),
        wants_(std::move(wants)) {}

  variable_list apply(variable_list&& gradients) override;
  void release_variables() override {
    chunks_.clear();
    outputs_.clear();
  }
  std::string name() const override { return "unisono::ReplicasBackward"; }

 private:
  std::vector<Tensor> cut(const Tensor& gradient) const;
  variable_list backward(size_t replica, const Tensor& gradient, bool keep) const;
  Tensor input_gradient(size_t input, size_t place, const std::vector<variable_list>& all) const;
  variable_list reduce(std::vector<variable_list>& all, size_t first) const;

  const std::shared_ptr<DataParallelCore::State> state_;
  std::vector<std::vector<Tensor>> chunks_;  // [replica][input]
  std::vector<Tensor> outputs_;              // of replicas, with their graphs
  const std::vector<bool> wants_;            // which inputs want a gradient
};

std::vector<Tensor> ReplicasBackward::cut(const Tensor& gradient) const {
  std::vector<Tensor> parts;
  int64_t at = 0;
  for (const Tensor& output : outputs_) {
    const int64_t rows = output.dim() == 0 ? 1 : output.size(0);
    const Tensor part = gradient.narrow(0, at, rows);
    parts.push_back(output.dim() == 0 ? part.squeeze(0) : part);
    at += rows;
  }
  return parts;
}

// Of the chunks that want one, then of the parameters. Undefined where nothing was used.
variable_list ReplicasBackward::backward(size_t replica, const Tensor& gradient, bool keep) const {
  variable_list to;
  for (size_t i = 0; i < wants_.size(); i++) {
    if (wants_[i] && replica < chunks_.size()) to.push_back(chunks_[replica][i]);
  }
  for (const Tensor& tensor : state_->replicas.trainable(replica)) to.push_back(tensor);
  if (replica >= outputs_.size() || !outputs_[replica].requires_grad() || to.empty()) {
    return variable_list(to.size());
  }
  return torch::autograd::grad({outputs_[replica]}, to, {gradient}, keep, false, true);
}

Tensor ReplicasBackward::input_gradient(size_t input, size_t place,
                                        const std::vector<variable_list>& all) const {
  std::vector<Tensor> parts;
  for (size_t replica = 0; replica < outputs_.size(); replica++) {
    const Tensor& part = all[replica][place];
    parts.push_back(part.defined() ? part : at::zeros_like(chunks_[replica][input]));
  }
  return at::cat(parts);
}

// The parameters' gradients begin at `first` (at 0 for a replica without a chunk).
variable_list ReplicasBackward::reduce(std::vector<variable_list>& all, size_t first) const {
  Replicas& replicas = state_->replicas;
  const std::vector<Tensor> parameters = replicas.trainable(0);
  std::vector<size_t> used;
  for (size_t i = 0; i < parameters.size(); i++) {
    for (size_t replica = 0; replica < outputs_.size(); replica++) {
      if (!all[replica][first + i].defined()) continue;
      used.push_back(i);
      break;
    }
  }
  variable_list sums(parameters.size());
  replicas.run([&](size_t replica) {
    std::vector<Tensor> mine;
    for (const size_t i : used) {
      const bool is_there = replica < outputs_.size() && all[replica][first + i].defined();
      mine.push_back(is_there ? all[replica][first + i] : at::zeros_like(parameters[i]));
    }
    replicas.sum_to_module(replica, mine);
    for (size_t i = 0; i < used.size() && replica == 0; i++) sums[used[i]] = mine[i];
  });
  return sums;
}

variable_list ReplicasBackward::apply(variable_list&& gradients) {
  TORCH_CHECK(!outputs_.empty(),
              "unisono: DataParallel: backward a second time, without retain_graph the first time");
  const size_t inputs = wants_.size();
  variable_list results(inputs + state_->replicas.trainable(0).size());
  if (!gradients[0].defined()) return results;
  const std::vector<Tensor> parts = cut(gradients[0]);
  const bool keep = torch::autograd::get_current_graph_task_keep_graph();
  std::vector<variable_list> all(state_->replicas.count());
  // All of it before any of the sum: a replica that fails leaves no other waiting in a collective.
  state_->replicas.run([&](size_t replica) {
    all[replica] = backward(replica, replica < parts.size() ? parts[replica] : Tensor(), keep);
  });
  size_t place = 0;
  for (size_t i = 0; i < inputs; i++) {
    if (wants_[i]) results[i] = input_gradient(i, place++, all);
  }
  variable_list sums = reduce(all, place);
  std::move(sums.begin(), sums.end(), results.begin() + static_cast<ptrdiff_t>(inputs));
  return results;
}

// Chunks that begin a graph of their own, each on its replica.
std::vector<std::vector<Tensor>> detach(const std::vector<std::vector<Tensor>>& chunks,
                                        const std::vector<bool>& wants) {
  std::vector<std::vector<Tensor>> leaves;
  for (const auto& chunk : chunks) {
    leaves.emplace_back();
    for (size_t i = 0; i < chunk.size(); i++) {
      leaves.back().push_back(chunk[i].detach().set_requires_grad(wants[i]));
    }
  }
  return leaves;
}

Tensor put_together(const std::vector<Tensor>& outputs) {
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> parts;
  for (const Tensor& output : outputs) parts.push_back(output.detach());
  return parts.front().dim() == 0 ? at::stack(parts) : at::cat(parts);
}

}  // namespace

DataParallelCore::DataParallelCore(std::vector<std::shared_ptr<torch::nn::Module>> replicas)
    : state_(std::make_shared<State>(std::move(replicas))) {}

DataParallelCore::~DataParallelCore() = default;

Tensor DataParallelCore::run(const std::vector<Tensor>& inputs,
                             const std::vector<std::vector<Tensor>>& chunks,
                             const Forward& forward) {
  Replicas& replicas = state_->replicas;
  const bool records = torch::GradMode::is_enabled();
  const std::vector<bool> wants = records ? wanted(inputs) : std::vector<bool>(inputs.size());
  const auto leaves = detach(chunks, wants);
  std::vector<Tensor> outputs(chunks.size());
  replicas.follow_module();
  const at::ThreadLocalState caller;  // grad mode, autocast
  replicas.run([&](size_t replica) {
    const at::ThreadLocalStateGuard guard(caller);
    replicas.take_values(replica);
    if (replica < leaves.size()) outputs[replica] = forward(replica, leaves[replica]);
  });
  Tensor whole = put_together(outputs);
  bool differentiable = false;
  for (const Tensor& output : outputs) differentiable = differentiable || output.requires_grad();
  if (!records || !differentiable) return whole;
  std::vector<Tensor> sources = inputs;
  for (const Tensor& parameter : replicas.trainable(0)) sources.push_back(parameter);
  auto node = std::make_shared<ReplicasBackward>(state_, leaves, std::move(outputs), wants);
  node->set_next_edges(torch::autograd::collect_next_edges(sources));
  torch::autograd::set_history(whole, node);
  return whole;
}

}  // namespace unisono::ddp
