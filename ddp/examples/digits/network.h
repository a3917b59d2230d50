// A multi-layer perceptron with a hand-written backward pass: what a framework would be here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ddp/examples/digits/dataset.h"

namespace digits {

template <class T>
struct Parameter {
  std::string name;           // "layer1.weight"
  std::vector<size_t> shape;  // weight: inputs, outputs; bias: outputs
  std::vector<T> value;
  T* grad = nullptr;  // value.size() elements, wherever who averages them wants them
};

// Layers of `sizes` units, tanh between them, softmax and cross-entropy at the end. tanh and not
// ReLU, whose derivative jumps: a rounding difference between one process and several would now and
// then become a different gradient. One thread.
template <class T>
class Network {
 public:
  explicit Network(const std::vector<int>& sizes);

  // Xavier's uniform distribution, from the seed; biases 0.
  void initialise(uint64_t seed);
  // In the model's order: weight and bias of layer 1, of layer 2, ...
  std::vector<Parameter<T>>& parameters() { return parameters_; }

  // Keeps what backward needs. Returns the sum over images of the cross-entropy.
  double forward(const Dataset& set, const std::vector<uint64_t>& images);
  // Gradients of `scale` times that sum, from the last layer to the first; ready(p) as soon as
  // parameter p has its own.
  void backward(T scale, const std::function<void(int)>& ready);
  // How many of the images the last forward got right.
  uint64_t correct() const;

 private:
  void load(const Dataset& set, const std::vector<uint64_t>& images);
  double softmax();

  std::vector<size_t> sizes_;
  std::vector<Parameter<T>> parameters_;
  // Of the last forward: units[0] the images, units.back() probabilities; a row an image.
  std::vector<std::vector<T>> units_;
  std::vector<unsigned char> labels_;
  std::vector<T> error_, error_below_;  // Derivatives by a layer's sums.
};

extern template class Network<float>;
extern template class Network<double>;

}  // namespace digits
