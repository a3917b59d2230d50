#include "ddp/torch/module_state.h"

#include <c10/util/StringUtil.h>

#include <unordered_set>
#include <utility>

#include "ddp/torch/messages.h"
#include "unisono/ddp.h"
#include "unisono/torch/tensors.h"

namespace unisono::ddp {
namespace {

using Seen = std::unordered_set<const c10::TensorImpl*>;

void add(const torch::OrderedDict<std::string, torch::Tensor>& named, const char* kind, Seen& seen,
         std::vector<NamedTensor>& tensors) {
  for (const auto& item : named) {
    const torch::Tensor& tensor = item.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    TORCH_CHECK(tensor.layout() == torch::kStrided && tensor.device().is_cpu(), kind, " ",
                item.key(), " is ", tensor.toString(),
                ": only dense tensors on the CPU are supported");
    if (tensor.numel() > 0) tensors.push_back({item.key(), tensor});
  }
}

std::string describe(const char* kind, const NamedTensor& named) {
  const torch::Tensor& tensor = named.tensor;
  return c10::str(kind, " ", named.name, ": ", c10::toString(tensor.scalar_type()), " ",
                  tensor.sizes(), ", strides ", tensor.strides(),
                  tensor.requires_grad() ? "" : ", no gradient");
}

std::vector<std::string> describe(const ModuleState& state) {
  std::vector<std::string> lines;
  for (const auto& named : state.parameters) lines.push_back(describe("parameter", named));
  for (const auto& named : state.buffers) lines.push_back(describe("buffer", named));
  return lines;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Empty: none.
std::string first_difference(const std::vector<std::string>& mine,
                             const std::vector<std::string>& rank0, int rank) {
  for (size_t i = 0; i < mine.size() || i < rank0.size(); i++) {
    const std::string here = i < mine.size() ? mine[i] : "nothing more";
    const std::string there = i < rank0.size() ? rank0[i] : "nothing more";
    if (here != there) {
      return c10::str("the models differ: rank ", rank, " has ", here, "; rank 0 has ", there);
    }
  }
  return {};
}

}  // namespace

std::vector<torch::Tensor> ModuleState::buffer_tensors() const {
  std::vector<torch::Tensor> all;
  for (const auto& named : buffers) all.push_back(named.tensor);
  return all;
}

std::vector<torch::Tensor> ModuleState::tensors() const {
  std::vector<torch::Tensor> all;
  for (const auto& named : parameters) all.push_back(named.tensor);
  for (const auto& named : buffers) all.push_back(named.tensor);
  return all;
}

ModuleState module_state(const torch::nn::Module& module) {
  ModuleState state;
  Seen seen;
  add(module.named_parameters(), "parameter", seen, state.parameters);
  add(module.named_buffers(), "buffer", seen, state.buffers);
  return state;
}

void verify_alike(const ModuleState& state, uniComm_t comm) {
  int rank = 0;
  check(uniCommUserRank(comm, &rank), "the rank");
  const std::vector<std::string> mine = describe(state);
  std::string text;
  for (const std::string& line : mine) text += line + '\n';
  const std::vector<std::string> rank0 = split_lines(broadcast_text(text, 0, comm));
  fail_together(first_difference(mine, rank0, rank), comm);
}

void broadcast_tensors(const std::vector<torch::Tensor>& tensors, int root, uniComm_t comm) {
  const torch::NoGradGuard no_grad;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies;  // of those with gaps
  std::vector<void*> memory;
  std::vector<size_t> bytes;
  for (const torch::Tensor& tensor : tensors) {
    torch::Tensor block = tensor;
    if (!is_block(tensor)) {
      block = tensor.contiguous();
      copies.emplace_back(tensor, block);
    }
    memory.push_back(block.data_ptr());
    bytes.push_back(block.nbytes());
  }
  const std::vector<uniDataType_t> types(memory.size(), uniUint8);
  check(uniBroadcastCoalesced(comm, memory.data(), bytes.data(), types.data(),
                              static_cast<int>(memory.size()), root),
        "the broadcast of parameters and buffers");
  for (auto& [tensor, block] : copies) tensor.copy_(block);
}

bool is_block(const torch::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense();
}

}  // namespace unisono::ddp
