#include "ddp/bench/model.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace ddp_bench {
namespace {

using Model = std::vector<Shape>;

void add(Model* model, const std::string& name, std::vector<size_t> dims) {
  model->push_back({name, std::move(dims)});
}

void add_norm(Model* model, const std::string& name, size_t width) {
  add(model, name + ".weight", {width});
  add(model, name + ".bias", {width});
}

// Convolution without bias, and the normalisation behind it.
void add_conv(Model* model, const std::string& conv, const std::string& norm, size_t out, size_t in,
              size_t kernel) {
  add(model, conv + ".weight", {out, in, kernel, kernel});
  add_norm(model, norm, out);
}

Model resnet50() {
  Model model;
  add_conv(&model, "conv1", "bn1", 64, 3, 7);
  const size_t blocks[] = {3, 4, 6, 3};
  size_t in = 64;
  for (size_t layer = 0; layer < 4; layer++) {
    const size_t width = size_t{64} << layer, out = 4 * width;
    for (size_t block = 0; block < blocks[layer]; block++) {
      const std::string at =
          "layer" + std::to_string(layer + 1) + "." + std::to_string(block) + ".";
      add_conv(&model, at + "conv1", at + "bn1", width, in, 1);
      add_conv(&model, at + "conv2", at + "bn2", width, width, 3);
      add_conv(&model, at + "conv3", at + "bn3", out, width, 1);
      if (block == 0) add_conv(&model, at + "downsample.0", at + "downsample.1", out, in, 1);
      in = out;
    }
  }
  add(&model, "fc.weight", {1000, 2048});
  add(&model, "fc.bias", {1000});
  return model;
}

// Weights as PyTorch's Linear has them: out by in.
void add_linear(Model* model, const std::string& name, size_t out, size_t in) {
  add(model, name + ".weight", {out, in});
  add(model, name + ".bias", {out});
}

Model gpt2() {
  constexpr size_t kWidth = 768;
  Model model;
  add(&model, "wte.weight", {50257, kWidth});
  add(&model, "wpe.weight", {1024, kWidth});
  for (int layer = 0; layer < 12; layer++) {
    const std::string at = "h." + std::to_string(layer) + ".";
    add_norm(&model, at + "ln_1", kWidth);
    add_linear(&model, at + "attn.c_attn", 3 * kWidth, kWidth);
    add_linear(&model, at + "attn.c_proj", kWidth, kWidth);
    add_norm(&model, at + "ln_2", kWidth);
    add_linear(&model, at + "mlp.c_fc", 4 * kWidth, kWidth);
    add_linear(&model, at + "mlp.c_proj", kWidth, 4 * kWidth);
  }
  add_norm(&model, "ln_f", kWidth);
  return model;
}

// Appends the dimension that `word` says. "" or what is wrong with it. *elements: of the shape so
// far.
std::string add_dim(const std::string& word, size_t* elements, Shape* shape) {
  long long dim = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, code] = std::from_chars(word.data(), end, dim);
  if (code == std::errc::invalid_argument || stop != end) return "is not 'name dim dim ...'";
  if (code != std::errc() || dim < 1 ||
      static_cast<unsigned long long>(dim) > (size_t{1} << 32) / *elements) {
    return "dimension " + word + " (each is at least 1, their product at most 2^32)";
  }
  shape->dims.push_back(static_cast<size_t>(dim));
  *elements *= static_cast<size_t>(dim);
  return "";
}

Model from_file(const std::string& path, std::string* problem) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) {
    *problem = path + ": is a folder";
    return {};
  }
  std::ifstream file(path);
  if (!file) {
    *problem = path + ": is neither resnet50 nor gpt2 nor a file that can be read";
    return {};
  }
  Model model;
  std::string line;
  for (int number = 1; std::getline(file, line); number++) {
    std::istringstream words(line.substr(0, line.find('#')));
    Shape shape;
    if (!(words >> shape.name)) continue;
    size_t elements = 1;
    std::string wrong;
    for (std::string word; wrong.empty() && words >> word;) {
      wrong = add_dim(word, &elements, &shape);
    }
    if (wrong.empty() && shape.dims.empty()) wrong = "is not 'name dim dim ...'";
    if (!wrong.empty()) {
      *problem = path + ":" + std::to_string(number) + ": " + wrong;
      return {};
    }
    model.push_back(std::move(shape));
  }
  if (file.bad()) {
    *problem = path + ": cannot be read";
    return {};
  }
  if (model.empty()) *problem = path + ": holds no parameter";
  return model;
}

}  // namespace

size_t Shape::count() const {
  size_t count = 1;
  for (const size_t dim : dims) count *= dim;
  return count;
}

std::vector<Shape> load_model(const std::string& name, std::string* problem) {
  if (name == "resnet50") return resnet50();
  if (name == "gpt2") return gpt2();
  return from_file(name, problem);
}

}  // namespace ddp_bench
