#include "ddp/examples/gpt-mini/text.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <vector>

namespace gpt_mini {
namespace {

std::string read(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  TORCH_CHECK(in.good() || in.eof(), file, " cannot be read");
  return text;
}

}  // namespace

Text::Text(const std::string& file, int context) : context_(context) {
  const std::string text = read(file);
  std::array<int64_t, 256> code{};
  std::array<bool, 256> occurs{};
  for (const char c : text) occurs[static_cast<unsigned char>(c)] = true;
  for (size_t c = 0; c < occurs.size(); c++) {
    if (occurs[c]) code[c] = vocabulary_++;
  }
  std::vector<int64_t> codes;
  for (const char c : text) codes.push_back(code[static_cast<unsigned char>(c)]);
  const torch::Tensor all = torch::tensor(codes, torch::kInt64);
  const int64_t kept_back = all.numel() / 10;
  TORCH_CHECK(kept_back > context_, file, ": ", all.numel(),
              " characters are too few for sequences of ", context_);
  training_ = all.narrow(0, 0, all.numel() - kept_back);
  validation_ = all.narrow(0, all.numel() - kept_back, kept_back);
}

Text::Batch Text::batch(int sequences, uint64_t seed, int64_t step) const {
  auto generator =
      at::make_generator<at::CPUGeneratorImpl>(seed * 1000003 + static_cast<uint64_t>(step));
  const torch::Tensor starts =
      torch::randint(0, training_.numel() - context_, {sequences}, generator, torch::kInt64);
  const torch::Tensor places = starts.unsqueeze(1) + torch::arange(context_);
  return {training_.index({places}), training_.index({places + 1})};
}

Text::Batch Text::validation(int most_sequences) const {
  const int64_t sequences = std::min<int64_t>(most_sequences, (validation_.numel() - 1) / context_);
  const torch::Tensor part = validation_.narrow(0, 0, sequences * context_ + 1);
  return {part.narrow(0, 0, sequences * context_).view({sequences, context_}),
          part.narrow(0, 1, sequences * context_).view({sequences, context_})};
}

}  // namespace gpt_mini
