// Our side of torch_against_pytorch.py, which describes the cases: a rank of uni-run that trains
// each model of the given cases. Usage: torch_cases FOLDER CASE...
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/nn/functional/linear.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/torch.h"

namespace {

using torch::Tensor;
using unisono::ddp::DistributedDataParallel;
using unisono::ddp::DistributedDataParallelOptions;

constexpr int64_t kWidth = 8;
constexpr size_t kSmallBucket = 524;  // 0.0005 MiB
int this_rank = 0;

struct Model : torch::nn::Module {
  virtual Tensor forward(const Tensor& x, int64_t step) = 0;
  torch::nn::Linear linear(const char* name, int64_t in, int64_t out) {
    return register_module(name, torch::nn::Linear(in, out));
  }
};

struct Plain : Model {
  torch::nn::Linear first = linear("first", kWidth, 16), second = linear("second", 16, 16),
                    third = linear("third", 16, kWidth);
  Tensor forward(const Tensor& x, int64_t) override {
    return third(torch::tanh(second(torch::tanh(first(x)))));
  }
};

struct Normed : Model {
  torch::nn::Linear first = linear("first", kWidth, 16);
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(16));
  torch::nn::Linear second = linear("second", 16, kWidth);
  Tensor forward(const Tensor& x, int64_t) override { return second(torch::tanh(norm(first(x)))); }
};

struct Branches : Model {
  torch::nn::Linear first = linear("first", kWidth, kWidth), left = linear("left", kWidth, kWidth),
                    right = linear("right", kWidth, kWidth), rare = linear("rare", kWidth, kWidth),
                    never = linear("never", kWidth, kWidth);
  Tensor forward(const Tensor& input, int64_t step) override {
    Tensor x = torch::tanh(first(input));
    if (this_rank == 0 && step % 2 == 0) x = x + left(x);
    if (this_rank == 1 && step % 3 == 0) x = x + right(x);
    if (step % 10 == 0) x = x + rare(x);
    return x;
  }
};

struct Fixed : Model {
  torch::nn::Linear first = linear("first", kWidth, kWidth),
                    never = linear("never", kWidth, kWidth),
                    second = linear("second", kWidth, kWidth);
  Tensor forward(const Tensor& x, int64_t) override { return second(torch::tanh(first(x))); }
};

// Registers another's weight as its own.
struct SharedLinear : torch::nn::Module {
  Tensor weight, bias;
  explicit SharedLinear(const Tensor& other)
      : weight(register_parameter("weight", other)),
        bias(register_parameter("bias", torch::zeros({other.size(0)}))) {}
  Tensor forward(const Tensor& x) { return torch::nn::functional::linear(x, weight, bias); }
};

struct Tied : Model {
  torch::nn::Linear first = linear("first", kWidth, kWidth);
  std::shared_ptr<SharedLinear> second =
      register_module("second", std::make_shared<SharedLinear>(first->weight));
  Tensor forward(const Tensor& x, int64_t) override {
    return second->forward(torch::tanh(first(x)));
  }
};

struct TwoTypes : Plain {
  TwoTypes() { second->to(torch::kFloat64); }
  Tensor forward(const Tensor& x, int64_t) override {
    const Tensor middle = torch::tanh(first(x)).to(torch::kFloat64);
    return third(torch::tanh(second(middle)).to(torch::kFloat32));
  }
};

struct Case {
  std::shared_ptr<Model> model;
  DistributedDataParallelOptions options = {};
  bool joins = false;
  int accumulate = 1;
  bool freezes = false;
  bool keeps_zeros = false;
  bool divides_by_all = true;
  double momentum = 0.9;
};

Case make_case(const std::string& name) {
  const auto has = [&](const char* word) { return name.find(word) != std::string::npos; };
  Case made;
  if (has("unused")) {
    made.model = std::make_shared<Branches>();
  } else if (has("buffers")) {
    made.model = std::make_shared<Normed>();
  } else if (has("static")) {
    made.model = std::make_shared<Fixed>();
  } else if (has("shared")) {
    made.model = std::make_shared<Tied>();
  } else if (has("two_types")) {
    made.model = std::make_shared<TwoTypes>();
  } else {
    made.model = std::make_shared<Plain>();
  }
  made.options.find_unused_parameters = has("unused");
  made.options.static_graph = has("static");
  made.options.gradient_as_bucket_view = has("views");
  if (name == "views" || name == "buffers" || name == "join_views" || name == "two_types") {
    made.options.bucket_bytes = made.options.first_bucket_bytes = kSmallBucket;
  }
  if (name == "float16_hook") made.options.hook = uniHookFloat16Compress;
  if (name == "bfloat16_hook") made.options.hook = uniHookBfloat16Compress;
  made.joins = has("join");
  made.accumulate = has("no_sync") ? 3 : 1;
  made.freezes = has("frozen");
  made.keeps_zeros = has("kept");
  made.divides_by_all = !has("divide");
  if (name == "join_unused") made.momentum = 0;
  return made;
}

// Each once, as Python's parameters().
std::vector<Tensor> parameters_of(const Model& model) {
  std::vector<Tensor> parameters;
  for (const Tensor& tensor : model.parameters()) {
    bool is_new = true;
    for (const Tensor& seen : parameters) is_new = is_new && !seen.is_same(tensor);
    if (is_new) parameters.push_back(tensor);
  }
  return parameters;
}

std::vector<Tensor> state_of(const Model& model) {
  std::vector<Tensor> state = parameters_of(model);
  for (const Tensor& tensor : model.buffers()) state.push_back(tensor);
  return state;
}

std::vector<Tensor> tensors_of(const c10::IValue& value) {
  std::vector<Tensor> tensors;
  for (const c10::IValue& item : value.toListRef()) tensors.push_back(item.toTensor());
  return tensors;
}

void train(Case& of, const std::vector<Tensor>& batches, uniComm_t comm) {
  if (of.freezes) {
    auto& frozen = dynamic_cast<Plain&>(*of.model).second;
    frozen->weight.set_requires_grad(false);
    frozen->bias.set_requires_grad(false);
  }
  DistributedDataParallel ddp(of.model, comm, of.options);
  torch::optim::SGD optimizer(parameters_of(*of.model),
                              torch::optim::SGDOptions(0.05).momentum(of.momentum));
  std::optional<unisono::ddp::Join> join;
  unisono::ddp::JoinOptions join_options;
  join_options.divide_by_initial_world_size = of.divides_by_all;
  if (of.joins) join.emplace(ddp.core(), join_options);
  for (size_t step = 0; 2 * step < batches.size(); step++) {
    const bool last = (step + 1) % static_cast<size_t>(of.accumulate) == 0;
    std::optional<unisono::ddp::NoSync> no_sync;
    if (!last) no_sync.emplace(ddp.core());
    const Tensor output = ddp.forward(batches[2 * step], static_cast<int64_t>(step));
    torch::nn::functional::mse_loss(output, batches[2 * step + 1]).backward();
    if (!last) continue;
    optimizer.step();
    optimizer.zero_grad(!of.keeps_zeros);
  }
}

void run(const std::string& folder, const std::string& name, uniComm_t comm) {
  const std::string path = folder + "/" + name + "." + std::to_string(this_rank);
  std::ifstream in(path + ".in", std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  TORCH_CHECK(!bytes.empty(), path, ".in cannot be read");
  const auto parts = torch::jit::pickle_load(bytes).toTupleRef().elements().vec();
  Case of = make_case(name);
  const std::vector<Tensor> given = tensors_of(parts.at(0));
  const std::vector<Tensor> state = state_of(*of.model);
  TORCH_CHECK(given.size() == state.size(), name, ": ", given.size(), " tensors were given for ",
              state.size());
  {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < state.size(); i++) state[i].copy_(given[i]);
  }
  train(of, tensors_of(parts.at(1)), comm);
  std::vector<c10::IValue>
      result;  // a tuple: a list of tensors is written as a type of torch.jit's
  for (const Tensor& tensor : state) result.emplace_back(tensor.detach());
  const std::vector<char> out =
      torch::jit::pickle_save(c10::ivalue::Tuple::create(std::move(result)));
  std::ofstream(path + ".out", std::ios::binary)
      .write(out.data(), static_cast<std::streamsize>(out.size()));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    torch::set_num_threads(1);
    uniComm_t comm = nullptr;
    unisono::ddp::check(uniCommInitUrl(&comm, "env://", -1, -1, nullptr), "the communicator");
    unisono::ddp::check(uniCommUserRank(comm, &this_rank), "the rank");
    for (int i = 2; i < argc; i++) run(argv[1], argv[i], comm);
    unisono::ddp::check(uniCommDestroy(comm), "the communicator's end");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "torch_cases: %s\n", error.what());
    return 1;
  }
}
