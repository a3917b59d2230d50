#include "ddp/bench/backward.h"

#include <Eigen/Dense>
#include <algorithm>
#include <random>

namespace ddp_bench {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<Matrix>;
using ConstView = Eigen::Map<const Matrix>;

Eigen::Index as_index(size_t value) {
  return static_cast<Eigen::Index>(value);
}

void fill(std::vector<float>* values, std::mt19937* random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& value : *values) value = uniform(*random);
}

}  // namespace

Backward::Backward(const std::vector<Shape>& model, size_t batch, unsigned seed)
    : model_(model), batch_(batch) {
  size_t widest_in = 1, widest_out = 1;
  for (const Shape& shape : model) {
    widest_in = std::max(widest_in, shape.columns());
    widest_out = std::max(widest_out, shape.rows());
  }
  std::mt19937 random(seed);
  inputs_.resize(batch * widest_in);
  outputs_.resize(batch * widest_out);
  onward_.resize(batch * widest_in);
  fill(&inputs_, &random);
  fill(&outputs_, &random);
  for (const Shape& shape : model) {
    // Small ones are all the product needs; their values do not matter to its time.
    weights_.emplace_back(shape.dims.size() < 2 ? 0 : shape.count(), 0.01F);
  }
}

void Backward::gradient(size_t index, float* grad) {
  const Shape& shape = model_[index];
  const Eigen::Index rows = as_index(shape.rows()), columns = as_index(shape.columns());
  const ConstView outputs(outputs_.data(), as_index(batch_), rows);
  if (shape.dims.size() < 2) {
    View(grad, 1, rows).noalias() = outputs.colwise().sum();
    return;
  }
  const ConstView inputs(inputs_.data(), as_index(batch_), columns);
  View(grad, rows, columns).noalias() = outputs.transpose() * inputs;
  const ConstView weight(weights_[index].data(), rows, columns);
  View(onward_.data(), as_index(batch_), columns).noalias() = outputs * weight;
}

double Backward::expected(size_t index, size_t row, size_t column) const {
  const Shape& shape = model_[index];
  const size_t rows = shape.rows(), columns = shape.columns();
  double sum = 0;
  for (size_t b = 0; b < batch_; b++) {
    const double output = outputs_[b * rows + row];
    sum += shape.dims.size() < 2 ? output : output * inputs_[b * columns + column];
  }
  return sum;
}

}  // namespace ddp_bench
