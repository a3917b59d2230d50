// Gradients as backward computes them.
#pragma once

#include <cstddef>
#include <vector>

#include "ddp/bench/model.h"

namespace ddp_bench {

// Of each weight W (out by in) with `batch` rows of inputs X and of gradients Y of its outputs: its
// own gradient Y^T X, and what goes on to the layer before, Y W. Of a vector: the sum over Y's
// rows.
class Backward {
 public:
  // Allocates inputs and weights once, with values that depend on `seed` only.
  Backward(const std::vector<Shape>& model, size_t batch, unsigned seed);
  // Writes the gradient of parameter `index`, count elements; costs the two products.
  void gradient(size_t index, float* grad);
  // The gradient of one element, by itself, in double: for checking.
  double expected(size_t index, size_t row, size_t column) const;

 private:
  const std::vector<Shape>& model_;
  const size_t batch_;
  std::vector<float> inputs_, outputs_, onward_;  // batch by the widest in and out
  std::vector<std::vector<float>> weights_;
};

}  // namespace ddp_bench
