#include "ddp/examples/digits/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace digits {
namespace {

// out = in * weight + bias, a row an image.
template <class T>
void multiply(const std::vector<T>& in, const std::vector<T>& weight, const std::vector<T>& bias,
              std::vector<T>* out) {
  const size_t outputs = bias.size(), inputs = weight.size() / outputs;
  const size_t rows = in.size() / inputs;
  out->resize(rows * outputs);
  for (size_t row = 0; row < rows; row++) {
    T* sums = out->data() + row * outputs;
    std::copy(bias.begin(), bias.end(), sums);
    for (size_t i = 0; i < inputs; i++) {
      const T x = in[row * inputs + i];
      const T* weights = weight.data() + i * outputs;
      for (size_t o = 0; o < outputs; o++) sums[o] += x * weights[o];
    }
  }
}

// weight_grad = transposed(in) * error, bias_grad = the sum of error's rows.
template <class T>
void gradients(const std::vector<T>& in, const std::vector<T>& error, size_t outputs,
               T* weight_grad, T* bias_grad) {
  const size_t rows = error.size() / outputs, inputs = in.size() / rows;
  std::fill(weight_grad, weight_grad + inputs * outputs, T{0});
  std::fill(bias_grad, bias_grad + outputs, T{0});
  for (size_t row = 0; row < rows; row++) {
    const T* errors = error.data() + row * outputs;
    for (size_t o = 0; o < outputs; o++) bias_grad[o] += errors[o];
    for (size_t i = 0; i < inputs; i++) {
      const T x = in[row * inputs + i];
      T* sums = weight_grad + i * outputs;
      for (size_t o = 0; o < outputs; o++) sums[o] += x * errors[o];
    }
  }
}

// below = (error * transposed(weight)) times tanh's derivative at `in`, which is 1 - in^2.
template <class T>
void propagate(const std::vector<T>& in, const std::vector<T>& error, const std::vector<T>& weight,
               size_t outputs, std::vector<T>* below) {
  const size_t rows = error.size() / outputs, inputs = in.size() / rows;
  below->resize(in.size());
  for (size_t row = 0; row < rows; row++) {
    for (size_t i = 0; i < inputs; i++) {
      const T* errors = error.data() + row * outputs;
      const T* weights = weight.data() + i * outputs;
      T sum = 0;
      for (size_t o = 0; o < outputs; o++) sum += errors[o] * weights[o];
      const T x = in[row * inputs + i];
      (*below)[row * inputs + i] = sum * (1 - x * x);
    }
  }
}

}  // namespace

template <class T>
Network<T>::Network(const std::vector<int>& sizes)
    : sizes_(sizes.begin(), sizes.end()), units_(sizes.size()) {
  for (size_t layer = 1; layer < sizes_.size(); layer++) {
    const size_t inputs = sizes_[layer - 1], outputs = sizes_[layer];
    parameters_.push_back({fmt::format("layer{}.weight", layer),
                           {inputs, outputs},
                           std::vector<T>(inputs * outputs),
                           nullptr});
    parameters_.push_back(
        {fmt::format("layer{}.bias", layer), {outputs}, std::vector<T>(outputs), nullptr});
  }
}

template <class T>
void Network<T>::initialise(uint64_t seed) {
  std::mt19937 draw(static_cast<uint32_t>(seed));
  for (Parameter<T>& parameter : parameters_) {
    if (parameter.shape.size() < 2) continue;
    const double range =
        std::sqrt(6.0 / static_cast<double>(parameter.shape[0] + parameter.shape[1]));
    // Not std::uniform_real_distribution, whose numbers are its library's own.
    for (T& value : parameter.value) {
      value = static_cast<T>(range * (std::ldexp(static_cast<double>(draw()), -31) - 1));
    }
  }
}

template <class T>
void Network<T>::load(const Dataset& set, const std::vector<uint64_t>& images) {
  units_[0].resize(images.size() * kPixels);
  labels_.resize(images.size());
  for (size_t i = 0; i < images.size(); i++) {
    const unsigned char* pixels = set.pixels.data() + images[i] * kPixels;
    for (size_t p = 0; p < kPixels; p++) units_[0][i * kPixels + p] = T(pixels[p]) / 16;
    labels_[i] = set.labels[images[i]];
  }
}

template <class T>
double Network<T>::forward(const Dataset& set, const std::vector<uint64_t>& images) {
  load(set, images);
  for (size_t layer = 1; layer < sizes_.size(); layer++) {
    const Parameter<T>& weight = parameters_[2 * layer - 2];
    multiply(units_[layer - 1], weight.value, parameters_[2 * layer - 1].value, &units_[layer]);
    if (layer + 1 < sizes_.size()) {
      for (T& unit : units_[layer]) unit = std::tanh(unit);
    }
  }
  return softmax();
}

// Sums become probabilities; the loss is summed in float64 whatever T is.
template <class T>
double Network<T>::softmax() {
  double loss = 0;
  for (size_t image = 0; image < labels_.size(); image++) {
    T* row = units_.back().data() + image * kClasses;
    const T largest = *std::max_element(row, row + kClasses);
    const double shown = row[labels_[image]] - largest;
    double sum = 0;
    for (int c = 0; c < kClasses; c++) sum += std::exp(static_cast<double>(row[c] - largest));
    for (int c = 0; c < kClasses; c++) {
      row[c] = static_cast<T>(std::exp(static_cast<double>(row[c] - largest)) / sum);
    }
    loss += std::log(sum) - shown;
  }
  return loss;
}

template <class T>
void Network<T>::backward(T scale, const std::function<void(int)>& ready) {
  error_ = units_.back();
  for (size_t image = 0; image < labels_.size(); image++) {
    error_[image * kClasses + labels_[image]] -= 1;
  }
  for (T& error : error_) error *= scale;
  for (size_t layer = sizes_.size() - 1; layer > 0; layer--) {
    const int weight = static_cast<int>(2 * layer - 2), bias = weight + 1;
    const size_t outputs = sizes_[layer];
    gradients(units_[layer - 1], error_, outputs, parameters_[2 * layer - 2].grad,
              parameters_[2 * layer - 1].grad);
    ready(bias);
    ready(weight);
    if (layer == 1) break;
    propagate(units_[layer - 1], error_, parameters_[2 * layer - 2].value, outputs, &error_below_);
    error_.swap(error_below_);
  }
}

template <class T>
uint64_t Network<T>::correct() const {
  uint64_t right = 0;
  for (size_t image = 0; image < labels_.size(); image++) {
    const T* row = units_.back().data() + image * kClasses;
    right += std::max_element(row, row + kClasses) - row == labels_[image] ? 1 : 0;
  }
  return right;
}

template class Network<float>;
template class Network<double>;

}  // namespace digits
