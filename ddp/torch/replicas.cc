#include "ddp/torch/replicas.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <map>
#include <utility>

namespace unisono::ddp {
namespace {

uniDataType_t summed_type(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat16:
      return uniFloat16;
    case torch::kBFloat16:
      return uniBfloat16;
    case torch::kFloat64:
      return uniFloat64;
    default:
      TORCH_CHECK(tensor.scalar_type() == torch::kFloat32,
                  "unisono: DataParallel: gradients of type ", c10::toString(tensor.scalar_type()),
                  " cannot be summed");
      return uniFloat32;
  }
}

std::vector<ModuleState> states_of(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  std::vector<ModuleState> states;
  for (const auto& module : modules) {
    states.push_back(module_state(*module));
    TORCH_CHECK(states.back().parameters.size() == states.front().parameters.size() &&
                    states.back().buffers.size() == states.front().buffers.size(),
                "unisono: DataParallel: a clone has other parameters or buffers than the module");
  }
  return states;
}

std::vector<uniComm_t> make_comms(size_t count) {
  std::vector<uniComm_t> comms(count);
  check(uniCommInitAll(comms.data(), static_cast<int>(count), nullptr),
        "DataParallel's communicators");
  return comms;
}

}  // namespace

Replicas::Replicas(std::vector<std::shared_ptr<torch::nn::Module>> modules)
    : modules_(std::move(modules)),
      states_(states_of(modules_)),
      comms_(make_comms(modules_.size())),
      // Asked on this thread, whose own number then stays. Each replica gets its part of the cores.
      workers_(modules_.size(),
               [threads = std::max(1, at::get_num_threads() / static_cast<int>(modules_.size()))](
                   size_t) { at::set_num_threads(threads); }) {}

Replicas::~Replicas() {
  for (uniComm_t comm : comms_) (void)uniCommDestroy(comm);
}

std::vector<torch::Tensor> Replicas::trainable(size_t replica) const {
  std::vector<torch::Tensor> chosen;
  for (const NamedTensor& named : states_[replica].parameters) {
    if (named.tensor.requires_grad()) chosen.push_back(named.tensor);
  }
  return chosen;
}

void Replicas::follow_module() {
  const auto originals = modules_.front()->modules();
  for (size_t replica = 1; replica < count(); replica++) {
    const auto parts = modules_[replica]->modules();
    // A module comes before its parts, which train() sets too.
    for (size_t i = 0; i < parts.size() && i < originals.size(); i++) {
      if (parts[i]->is_training() != originals[i]->is_training()) {
        parts[i]->train(originals[i]->is_training());
      }
    }
    for (size_t i = 0; i < states_[replica].parameters.size(); i++) {
      const bool wants = states_.front().parameters[i].tensor.requires_grad();
      states_[replica].parameters[i].tensor.set_requires_grad(wants);
    }
  }
}

void Replicas::take_values(size_t replica) {
  if (count() > 1) broadcast_tensors(states_[replica].tensors(), 0, comms_[replica]);
}

void Replicas::sum_to_module(size_t replica, std::vector<torch::Tensor>& tensors) {
  if (count() == 1) return;
  const torch::NoGradGuard no_grad;
  std::map<torch::ScalarType, std::vector<size_t>> by_type;
  for (size_t i = 0; i < tensors.size(); i++) by_type[tensors[i].scalar_type()].push_back(i);
  for (const auto& [type, indices] : by_type) {
    std::vector<torch::Tensor> flat;
    for (const size_t i : indices) flat.push_back(tensors[i].reshape({-1}));
    const torch::Tensor all = at::cat(flat);
    check(uniReduce(all.data_ptr(), all.data_ptr(), static_cast<size_t>(all.numel()),
                    summed_type(all), uniSum, 0, comms_[replica], nullptr),
          "the sum of gradients");
    if (replica != 0) continue;
    int64_t at = 0;
    for (const size_t i : indices) {
      tensors[i] = all.narrow(0, at, tensors[i].numel()).view(tensors[i].sizes());
      at += tensors[i].numel();
    }
  }
}

}  // namespace unisono::ddp
