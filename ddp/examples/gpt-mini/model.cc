#include "ddp/examples/gpt-mini/model.h"

#include <torch/nn/functional/linear.h>
#include <torch/nn/init.h>

#include <cmath>
#include <limits>

namespace gpt_mini {

using torch::Tensor;

void BlockImpl::reset() {
  const int64_t width = shape.width;
  attention_norm =
      register_module("attention_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  query_key_value = register_module("query_key_value", torch::nn::Linear(width, 3 * width));
  projection = register_module("projection", torch::nn::Linear(width, width));
  perceptron_norm = register_module("perceptron_norm",
                                    torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  widen = register_module("widen", torch::nn::Linear(width, 4 * width));
  narrow = register_module("narrow", torch::nn::Linear(4 * width, width));
}

Tensor BlockImpl::attend(const Tensor& x) {
  const int64_t batch = x.size(0), time = x.size(1), head = shape.width / shape.heads;
  const auto parts = query_key_value(x).chunk(3, 2);
  const auto by_head = [&](const Tensor& of) {
    return of.view({batch, time, shape.heads, head}).transpose(1, 2);
  };
  Tensor scores = by_head(parts[0]).matmul(by_head(parts[1]).transpose(2, 3));
  const Tensor future = torch::ones({time, time}, torch::kBool).triu(1);
  scores = (scores / std::sqrt(static_cast<double>(head)))
               .masked_fill(future, -std::numeric_limits<float>::infinity());
  const Tensor mixed = scores.softmax(3).matmul(by_head(parts[2]));
  return projection(mixed.transpose(1, 2).reshape({batch, time, shape.width}));
}

Tensor BlockImpl::forward(const Tensor& x) {
  const Tensor attended = x + attend(attention_norm(x));
  return attended + narrow(torch::gelu(widen(perceptron_norm(attended))));
}

void GptImpl::reset() {
  tokens = register_module("tokens", torch::nn::Embedding(shape.vocabulary, shape.width));
  positions = register_module("positions", torch::nn::Embedding(shape.context, shape.width));
  blocks = register_module("blocks", torch::nn::ModuleList());
  for (int64_t i = 0; i < shape.layers; i++) blocks->push_back(Block(shape));
  norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({shape.width})));
  // As GPT-2: with the default of 1 the shared last layer would begin far too sure of itself.
  torch::nn::init::normal_(tokens->weight, 0, 0.02);
  torch::nn::init::normal_(positions->weight, 0, 0.02);
}

Tensor GptImpl::forward(const Tensor& characters) {
  const Tensor places = torch::arange(characters.size(1));
  Tensor x = tokens(characters) + positions(places);
  for (const auto& block : *blocks) x = block->as<BlockImpl>()->forward(x);
  return torch::nn::functional::linear(norm(x), tokens->weight);
}

}  // namespace gpt_mini
