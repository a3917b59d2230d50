// The characters of a text, and batches of it.
#pragma once

#include <torch/types.h>

#include <string>

namespace gpt_mini {

class Text {
 public:
  // Throws c10::Error if the file cannot be read or is shorter than two sequences.
  Text(const std::string& file, int context);

  int64_t vocabulary() const { return vocabulary_; }
  int64_t characters() const { return training_.numel() + validation_.numel(); }

  struct Batch {
    torch::Tensor input, target;  // [sequences, context], int64
  };
  // Of the training part: the same for equal seed and step, wherever it is called.
  Batch batch(int sequences, uint64_t seed, int64_t step) const;
  // Of the last tenth, which is not trained on: always the same.
  Batch validation(int most_sequences) const;

 private:
  const int64_t context_;
  int64_t vocabulary_ = 0;
  torch::Tensor training_, validation_;
};

}  // namespace gpt_mini
