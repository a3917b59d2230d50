// A transformer as GPT-2's: token and position embeddings, blocks of causal attention and a
// perceptron behind layer norms, and the token embedding once more as the last layer (shared: one
// parameter).
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

namespace gpt_mini {

struct GptShape {
  int64_t vocabulary = 0, context = 0, layers = 0, heads = 0, width = 0;
};

struct BlockImpl : torch::nn::Cloneable<BlockImpl> {
  explicit BlockImpl(const GptShape& its_shape) : shape(its_shape) { BlockImpl::reset(); }
  void reset() override;
  torch::Tensor forward(const torch::Tensor& x);  // [batch, time, width]
  torch::Tensor attend(const torch::Tensor& x);

  GptShape shape;
  torch::nn::LayerNorm attention_norm = nullptr, perceptron_norm = nullptr;
  torch::nn::Linear query_key_value = nullptr, projection = nullptr, widen = nullptr,
                    narrow = nullptr;
};
TORCH_MODULE(Block);

struct GptImpl : torch::nn::Cloneable<GptImpl> {
  explicit GptImpl(const GptShape& its_shape) : shape(its_shape) { GptImpl::reset(); }
  void reset() override;
  // From characters [batch, time] to logits [batch, time, vocabulary].
  torch::Tensor forward(const torch::Tensor& characters);

  GptShape shape;
  torch::nn::Embedding tokens = nullptr, positions = nullptr;
  torch::nn::ModuleList blocks = nullptr;
  torch::nn::LayerNorm norm = nullptr;
};
TORCH_MODULE(Gpt);

}  // namespace gpt_mini
