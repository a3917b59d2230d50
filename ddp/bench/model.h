// Models as lists of parameter shapes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddp_bench {

struct Shape {
  std::string name;
  std::vector<size_t> dims;
  size_t count() const;
  // As a matrix: the first dimension by all others; a vector is one column.
  size_t rows() const { return dims.empty() ? 1 : dims[0]; }
  size_t columns() const { return count() / (rows() == 0 ? 1 : rows()); }
};

// "resnet50" (He et al. 2016, as torchvision builds it: 161 tensors, 25.6 M), "gpt2" (Radford et
// al. 2019, small: 148 tensors, 124.4 M), or a file of lines "name dim dim ..." (# begins a
// comment). Empty, with the reason in *problem, if it cannot be read.
std::vector<Shape> load_model(const std::string& name, std::string* problem);

}  // namespace ddp_bench
