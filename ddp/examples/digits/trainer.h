#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "ddp/examples/digits/checkpoint.h"
#include "ddp/examples/digits/dataset.h"
#include "ddp/examples/digits/exchange.h"
#include "ddp/examples/digits/network.h"
#include "ddp/examples/digits/options.h"
#include "unisono/ddp.h"

namespace digits {

// One rank's whole training. Collective over comm, which is borrowed, as are options and data;
// failures end the process. Rank 0 prints, and alone touches the files.
template <class T>
class Trainer {
 public:
  Trainer(uniComm_t comm, const Options& options, const Split& data);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void run();

 private:
  bool first() const { return rank_ == 0; }
  uint64_t steps_an_epoch() const {
    return data_.train.size() / static_cast<size_t>(options_.batch);
  }
  std::vector<std::vector<T>*> state();
  void begin_or_resume();
  void open_files();
  void train_epoch();
  double step();
  void update();
  void record(double loss);
  void write_loss(uint64_t step, double loss);
  void save();
  double test_accuracy();
  void finish(double accuracy);

  uniComm_t comm_;
  const Options& options_;
  const Split& data_;
  int rank_ = 0, ranks_ = 1;
  Network<T> network_;
  std::vector<std::vector<T>> velocities_;  // SGD's momentum, a vector a parameter
  std::unique_ptr<Exchange<T>> exchange_;
  uniSampler_t order_ = nullptr;
  Progress progress_;
  std::FILE* losses_file_ = nullptr;
  std::FILE* plot_file_ = nullptr;  // opened first, written last
};

extern template class Trainer<float>;
extern template class Trainer<double>;

}  // namespace digits
