// DataParallel for a torch::nn::Module: one process, a replica of the module in each of several
// threads. forward cuts the batch into chunks along dimension 0, makes the replicas the module's
// equals, runs each on its chunk and puts the outputs together; backward runs in the replicas too,
// and their gradients end, summed, in the module's own parameters. The semantics are those of
// torch.nn.DataParallel; what moves between replicas goes through collectives of unisono.h, and
// gradients are reduced by them instead of on one device. docs/torch.md says why
// DistributedDataParallel is the better choice nearly always.
//
//   unisono::ddp::DataParallel parallel(model, 2);
//   auto loss = criterion(parallel.forward(input), target);
//   loss.backward();
//   optimizer.step();  // made of model->parameters()
//
// Threads: one object, one thread at a time; replicas run on threads of its own. Failure:
// c10::Error, or what a replica has thrown.
#ifndef UNISONO_TORCH_DATA_PARALLEL_H_
#define UNISONO_TORCH_DATA_PARALLEL_H_

#include <torch/nn/module.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "unisono/torch/tensors.h"

namespace unisono::ddp {

// What does not depend on the module's type. Use DataParallel.
class UNI_API DataParallelCore {
 public:
  // replicas[0] is the module itself, the others are clones of it.
  explicit DataParallelCore(std::vector<std::shared_ptr<torch::nn::Module>> replicas);
  ~DataParallelCore();
  DataParallelCore(const DataParallelCore&) = delete;
  DataParallelCore& operator=(const DataParallelCore&) = delete;

  // inputs[r][i]: chunk r of the i-th input. forward(r, inputs of r) runs on replica r's thread.
  using Forward = std::function<torch::Tensor(size_t, const std::vector<torch::Tensor>&)>;
  torch::Tensor run(const std::vector<torch::Tensor>& inputs,
                    const std::vector<std::vector<torch::Tensor>>& chunks, const Forward& forward);

  struct State;

 private:
  std::shared_ptr<State> state_;  // Shared with the graphs of outputs.
};

// ModuleType: a ModuleHolder or a shared_ptr of a torch::nn::Cloneable whose forward gives one
// tensor (what it gives per chunk is put together along dimension 0; scalars become a vector).
template <typename ModuleType>
class DataParallel {
  using Impl = std::remove_reference_t<decltype(*std::declval<ModuleType&>())>;

 public:
  // replicas: how many, at least 1.
  explicit DataParallel(ModuleType module, int replicas)
      : modules_(make_replicas(std::move(module), replicas)), core_(as_modules(modules_)) {}

  // Tensors among the arguments are cut (so that as many rows go to each replica as torch::chunk
  // gives); everything else goes to each replica as it is.
  template <typename... Args>
  torch::Tensor forward(const Args&... args) {
    std::vector<torch::Tensor> inputs;
    (add_input(args, inputs), ...);
    TORCH_CHECK(!inputs.empty(), "unisono: DataParallel: forward without a tensor to cut");
    return core_.run(
        inputs, cut(inputs), [&](size_t replica, const std::vector<torch::Tensor>& chunk) {
          size_t next = 0;
          // In braces: evaluated from left to right.
          const std::tuple<Part<Args>...> parts{pick(args, chunk, next)...};
          return std::apply(
              [&](const auto&... part) { return modules_[replica]->forward(part...); }, parts);
        });
  }
  template <typename... Args>
  torch::Tensor operator()(const Args&... args) {
    return forward(args...);
  }

  ModuleType& module() { return modules_.front(); }
  ModuleType& operator->() { return module(); }

 private:
  template <typename T>
  static constexpr bool is_tensor = std::is_convertible_v<const T&, const torch::Tensor&>;
  template <typename T>
  using Part = std::conditional_t<is_tensor<T>, torch::Tensor, const T&>;

  static std::vector<ModuleType> make_replicas(ModuleType module, int replicas) {
    TORCH_CHECK(replicas >= 1, "unisono: DataParallel: replicas: ", replicas, " is less than 1");
    std::vector<ModuleType> all;
    for (int i = 1; i < replicas; i++) {
      auto clone = std::dynamic_pointer_cast<Impl>(as_module(module)->clone());
      TORCH_CHECK(clone != nullptr, "unisono: DataParallel: the clone has another type");
      all.emplace_back(std::move(clone));
    }
    all.insert(all.begin(), std::move(module));
    return all;
  }
  static std::vector<std::shared_ptr<torch::nn::Module>> as_modules(
      const std::vector<ModuleType>& modules) {
    std::vector<std::shared_ptr<torch::nn::Module>> all;
    for (const ModuleType& module : modules) all.push_back(as_module(module));
    return all;
  }
  template <typename T>
  static void add_input(const T& value, std::vector<torch::Tensor>& inputs) {
    if constexpr (is_tensor<T>) inputs.push_back(value);
  }
  std::vector<std::vector<torch::Tensor>> cut(const std::vector<torch::Tensor>& inputs) const {
    std::vector<std::vector<torch::Tensor>> chunks;
    for (const torch::Tensor& input : inputs) {
      const auto parts = input.chunk(static_cast<int64_t>(modules_.size()));
      if (chunks.empty()) chunks.resize(parts.size());
      TORCH_CHECK(chunks.size() == parts.size(),
                  "unisono: DataParallel: inputs of different lengths");
      for (size_t i = 0; i < parts.size(); i++) chunks[i].push_back(parts[i]);
    }
    return chunks;
  }
  template <typename T>
  static decltype(auto) pick(const T& value, const std::vector<torch::Tensor>& chunk,
                             size_t& next) {
    if constexpr (is_tensor<T>) {
      return torch::Tensor(chunk[next++]);
    } else {
      return (value);
    }
  }

  std::vector<ModuleType> modules_;
  DataParallelCore core_;
};

}  // namespace unisono::ddp

#endif  // UNISONO_TORCH_DATA_PARALLEL_H_
