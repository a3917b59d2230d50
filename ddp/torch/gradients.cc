#include "ddp/torch/gradients.h"

#include <ATen/ops/from_blob.h>

#include <string>
#include <utility>

namespace unisono::ddp {
namespace {

uniDataType_t gradient_type(const NamedTensor& named) {
  switch (named.tensor.scalar_type()) {
    case torch::kFloat16:
      return uniFloat16;
    case torch::kBFloat16:
      return uniBfloat16;
    case torch::kFloat32:
      return uniFloat32;
    case torch::kFloat64:
      return uniFloat64;
    default:
      TORCH_CHECK(false, "unisono: parameter ", named.name, " is ",
                  c10::toString(named.tensor.scalar_type()),
                  ": gradients of this type cannot be averaged");
  }
}

// In the order of memory, where the elements lie without gaps: ranks have the same strides, so what
// lies at one place belongs together.
std::vector<int64_t> view_strides(const torch::Tensor& parameter) {
  if (is_block(parameter)) return parameter.strides().vec();
  std::vector<int64_t> strides(static_cast<size_t>(parameter.dim()), 1);
  for (size_t i = strides.size(); i > 1; i--) {
    strides[i - 2] = strides[i - 1] * parameter.size(static_cast<int64_t>(i - 1));
  }
  return strides;
}

uniReducerConfig_t make_config(const DistributedDataParallelOptions& options) {
  uniReducerConfig_t config = UNI_REDUCER_CONFIG_INITIALIZER;
  config.bucket_bytes = options.bucket_bytes;
  config.first_bucket_bytes = options.first_bucket_bytes;
  config.bucket_views = 1;
  config.find_unused = options.find_unused_parameters ? 1 : 0;
  config.static_graph = options.static_graph ? 1 : 0;
  config.hook = options.hook;
  config.hook_arg = options.hook_arg;
  return config;
}

}  // namespace

torch::Tensor bucket_tensor(const uniBucket_t& bucket) {
  const auto type = bucket.type == uniFloat16    ? torch::kFloat16
                    : bucket.type == uniBfloat16 ? torch::kBFloat16
                    : bucket.type == uniFloat64  ? torch::kFloat64
                                                 : torch::kFloat32;
  return at::from_blob(bucket.data, {static_cast<int64_t>(bucket.count)},
                       torch::TensorOptions(type));
}

Gradients::Gradients(uniComm_t comm, std::vector<NamedTensor> parameters,
                     const DistributedDataParallelOptions& options)
    : comm_(comm), parameters_(std::move(parameters)), as_views_(options.gradient_as_bucket_view) {
  TORCH_CHECK(!parameters_.empty(),
              "unisono: the module has no parameter that requires a gradient: it needs no "
              "DistributedDataParallel");
  std::vector<std::vector<size_t>> shapes;
  std::vector<uniParameter_t> described;
  for (const NamedTensor& named : parameters_) {
    shapes.emplace_back(named.tensor.sizes().begin(), named.tensor.sizes().end());
    TORCH_CHECK(shapes.back().size() <= 16, "unisono: parameter ", named.name,
                " has more than 16 dimensions");
  }
  for (size_t i = 0; i < parameters_.size(); i++) {
    described.push_back({parameters_[i].name.c_str(), nullptr, gradient_type(parameters_[i]),
                         static_cast<int>(shapes[i].size()), shapes[i].data()});
  }
  const uniReducerConfig_t config = make_config(options);
  uniReducer_t made = nullptr;
  check(uniReducerCreate(&made, comm, described.data(), size(), &config), "the reducer");
  reducer_.reset(made);
  for (int i = 0; i < size(); i++) views_.push_back(make_view(i));
}

Gradients::~Gradients() {
  leave_views();
}

torch::Tensor Gradients::make_view(int index) {
  const torch::Tensor& parameter = parameters_[static_cast<size_t>(index)].tensor;
  void* memory = nullptr;
  check(uniReducerGradient(reducer(), index, &memory), "the place of a gradient");
  return at::from_blob(memory, parameter.sizes(), view_strides(parameter), parameter.options());
}

void Gradients::require_unchanged(int index) const {
  const auto& [name, tensor] = parameters_[static_cast<size_t>(index)];
  const torch::Tensor& view = views_[static_cast<size_t>(index)];
  TORCH_CHECK(tensor.scalar_type() == view.scalar_type() && tensor.sizes() == view.sizes(),
              "unisono: parameter ", name, " was ", c10::toString(view.scalar_type()), " ",
              view.sizes(), " when DistributedDataParallel was made, and is ",
              c10::toString(tensor.scalar_type()), " ", tensor.sizes());
}

bool Gradients::is_view(int index) {
  const torch::Tensor& gradient = parameter(index).grad();
  const torch::Tensor& view = views_[static_cast<size_t>(index)];
  return gradient.defined() && gradient.has_storage() && gradient.data_ptr() == view.data_ptr();
}

uniResult_t Gradients::deliver(int index) {
  const torch::NoGradGuard no_grad;
  const auto& [name, tensor] = parameters_[static_cast<size_t>(index)];
  torch::Tensor& view = views_[static_cast<size_t>(index)];
  const torch::Tensor& gradient = tensor.grad();
  if (!gradient.defined()) {
    view.zero_();  // backward reached it with nothing
  } else if (!is_view(index)) {
    if (gradient.layout() != torch::kStrided) {
      const std::string words =
          "the gradient of parameter " + name + " is not dense: this is not supported";
      return uniSetLastError(uniInvalidUsage, words.c_str());
    }
    view.copy_(gradient);
    if (as_views_) tensor.mutable_grad() = view;
  }
  return uniReducerMarkReady(reducer(), index);
}

uniResult_t Gradients::deliver_zeros(int index) {
  const torch::NoGradGuard no_grad;
  views_[static_cast<size_t>(index)].zero_();
  return uniReducerMarkReady(reducer(), index);
}

void Gradients::receive(int index, double factor) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& tensor = parameter(index);
  torch::Tensor& view = views_[static_cast<size_t>(index)];
  if (factor != 1.0) view.mul_(factor);
  if (is_view(index)) return;
  if (as_views_) {
    tensor.mutable_grad() = view;
  } else if (tensor.grad().defined()) {
    tensor.mutable_grad().copy_(view);
  } else {
    tensor.mutable_grad() = view.clone();
  }
}

void Gradients::find_views() {
  for (int i = 0; i < size(); i++) {
    torch::Tensor now = make_view(i);
    torch::Tensor& before = views_[static_cast<size_t>(i)];
    if (now.data_ptr() == before.data_ptr()) continue;
    if (is_view(i)) parameter(i).mutable_grad() = now;
    before = now;
  }
}

void Gradients::leave_views() {
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < static_cast<int>(views_.size()); i++) {
    if (is_view(i)) parameter(i).mutable_grad() = views_[static_cast<size_t>(i)].clone();
  }
}

}  // namespace unisono::ddp
