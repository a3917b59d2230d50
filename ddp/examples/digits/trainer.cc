#include "ddp/examples/digits/trainer.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <span>

#include "ddp/examples/digits/check.h"
#include "ddp/examples/digits/plot.h"

namespace digits {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<int> layers_of(const Options& options) {
  std::vector<int> layers = {kPixels};
  layers.insert(layers.end(), options.hidden.begin(), options.hidden.end());
  layers.push_back(kClasses);
  return layers;
}

std::FILE* open_for_writing(const char* flag, const std::string& file) {
  std::FILE* const out = std::fopen(file.c_str(), "w");
  if (out == nullptr) fail("{}: {}: {}", flag, file, std::strerror(errno));
  return out;
}

// At most `capacity` of this rank's next images.
std::vector<uint64_t> next_images(uniSampler_t sampler, uint64_t capacity) {
  std::vector<uint64_t> images(capacity);
  uint64_t count = 0;
  must(uniSamplerNext(sampler, images.data(), capacity, &count), "uniSamplerNext");
  images.resize(count);
  return images;
}

}  // namespace

template <class T>
Trainer<T>::Trainer(uniComm_t comm, const Options& options, const Split& data)
    : comm_(comm), options_(options), data_(data), network_(layers_of(options)) {
  must(uniCommUserRank(comm, &rank_), "uniCommUserRank");
  must(uniCommCount(comm, &ranks_), "uniCommCount");
  if (options.batch % ranks_ != 0) {
    fail("--batch: {} images cannot be shared equally by {} ranks", options.batch, ranks_);
  }
  if (steps_an_epoch() == 0) {
    fail("--batch: {} is more than the {} images to train on", options.batch, data.train.size());
  }
  for (const Parameter<T>& parameter : network_.parameters()) {
    velocities_.emplace_back(parameter.value.size());
  }
  exchange_ = make_exchange(comm, &network_.parameters(), options);
  uniSamplerConfig_t config = UNI_SAMPLER_CONFIG_INITIALIZER;
  config.seed = options.seed;
  must(uniSamplerCreate(&order_, data.train.size(), ranks_, rank_, &config), "uniSamplerCreate");
  progress_.type_bytes = sizeof(T);
  progress_.batch = static_cast<uint64_t>(options.batch);
  progress_.seed = options.seed;
  progress_.train_images = data.train.size();
  for (const int layer : layers_of(options))
    progress_.layers.push_back(static_cast<uint64_t>(layer));
}

template <class T>
Trainer<T>::~Trainer() {
  must(uniSamplerDestroy(order_), "uniSamplerDestroy");
  if (losses_file_ != nullptr && std::fclose(losses_file_) != 0) {
    fail("--losses: {}: {}", options_.losses_file, std::strerror(errno));
  }
}

// Everything that steps change: parameters and the optimizer's state.
template <class T>
std::vector<std::vector<T>*> Trainer<T>::state() {
  std::vector<std::vector<T>*> state;
  for (Parameter<T>& parameter : network_.parameters()) state.push_back(&parameter.value);
  for (std::vector<T>& velocity : velocities_) state.push_back(&velocity);
  return state;
}

template <class T>
Tensors bytes_of(const std::vector<std::vector<T>*>& state) {
  Tensors tensors;
  for (std::vector<T>* tensor : state)
    tensors.push_back(std::as_writable_bytes(std::span(*tensor)));
  return tensors;
}

// Rank 0 reads or makes the state, and all get it from there: the file need not be theirs to read.
template <class T>
void Trainer<T>::begin_or_resume() {
  Loaded loaded = Loaded::kNo;
  if (first() && !options_.checkpoint_file.empty()) {
    std::string problem;
    loaded = read_checkpoint(options_.checkpoint_file, &progress_, bytes_of(state()), &problem);
    if (loaded == Loaded::kFailed) fail("--checkpoint: {}", problem);
    problem = try_checkpoint(options_.checkpoint_file);
    if (!problem.empty()) fail("--checkpoint: {}", problem);
  }
  if (first() && loaded == Loaded::kNo) network_.initialise(options_.seed);
  uint64_t where[3] = {progress_.epoch, progress_.images, progress_.step};
  must(uniBroadcast(where, where, 3, uniUint64, 0, comm_, nullptr), "uniBroadcast");
  broadcast_from_first(comm_, state());
  progress_.epoch = where[0];
  progress_.images = where[1];
  progress_.step = where[2];
  if (loaded == Loaded::kYes) {
    say("resumed from {}: epoch {}, step {}\n", options_.checkpoint_file, progress_.epoch + 1,
        progress_.step);
  }
}

template <class T>
void Trainer<T>::open_files() {
  if (!first()) return;
  if (!options_.plot_file.empty()) plot_file_ = open_for_writing("--plot", options_.plot_file);
  if (options_.losses_file.empty()) return;
  losses_file_ = open_for_writing("--losses", options_.losses_file);
  std::setvbuf(losses_file_, nullptr, _IOLBF, 0);  // whole lines, also of a run that is killed
  for (size_t i = 0; i < progress_.losses.size(); i++) {
    write_loss(i + 1, progress_.losses[i]);
  }
}

template <class T>
void Trainer<T>::run() {
  begin_or_resume();
  open_files();
  double accuracy = -1;
  while (progress_.epoch < static_cast<uint64_t>(options_.epochs)) {
    train_epoch();
    accuracy = test_accuracy();
    if (first()) say("  test accuracy {:.2f} %\n", 100 * accuracy);
    std::fflush(stdout);
    progress_.epoch++;
    progress_.images = 0;
    save();
  }
  finish(accuracy < 0 ? test_accuracy() : accuracy);
}

// The order of images is one list, of which rank r takes every ranks-th from the r-th on: whatever
// the number of ranks, step s of an epoch has the same batch. What does not fill one is left out.
template <class T>
void Trainer<T>::train_epoch() {
  const auto own_position = progress_.images / static_cast<uint64_t>(ranks_);
  must(uniSamplerResume(order_, progress_.epoch, own_position), "uniSamplerResume");
  const uint64_t begin_step = progress_.step;
  const Clock::time_point begin = Clock::now();
  double sum = 0;
  const uint64_t end = steps_an_epoch() * progress_.batch;
  while (progress_.images < end) {
    sum += step();
    const auto every = static_cast<uint64_t>(options_.checkpoint_every);
    if (every > 0 && progress_.step % every == 0 && progress_.images < end) save();
  }
  const auto steps = static_cast<double>(progress_.step - begin_step);
  const std::chrono::duration<double, std::milli> passed = Clock::now() - begin;
  if (first() && steps > 0) {
    say("epoch {:>3}/{}  step {:>5}  loss {:.4f}  {:.3f} ms a step", progress_.epoch + 1,
        options_.epochs, progress_.step, sum / steps, passed.count() / steps);
  }
}

// One step on the global batch; returns its mean loss.
template <class T>
double Trainer<T>::step() {
  const auto own = static_cast<uint64_t>(options_.batch / ranks_);
  const std::vector<uint64_t> images = next_images(order_, own);
  exchange_->before_forward();
  double loss = network_.forward(data_.train, images);
  exchange_->before_backward();
  const double divisor = exchange_->divisor(images.size(), progress_.batch);
  network_.backward(static_cast<T>(1 / divisor), [this](int p) { exchange_->ready(p); });
  exchange_->after_backward();
  if (exchange_->updates()) update();
  must(uniAllReduce(&loss, &loss, 1, uniFloat64, uniSum, comm_, nullptr), "uniAllReduce");
  loss /= static_cast<double>(progress_.batch);
  progress_.step++;
  progress_.images += progress_.batch;
  if (first()) record(loss);
  return loss;
}

// Stochastic gradient descent with momentum.
template <class T>
void Trainer<T>::update() {
  const T momentum = static_cast<T>(options_.momentum);
  const T rate = static_cast<T>(options_.learning_rate);
  for (size_t p = 0; p < velocities_.size(); p++) {
    Parameter<T>& parameter = network_.parameters()[p];
    for (size_t i = 0; i < parameter.value.size(); i++) {
      velocities_[p][i] = momentum * velocities_[p][i] + parameter.grad[i];
      parameter.value[i] -= rate * velocities_[p][i];
    }
  }
}

template <class T>
void Trainer<T>::record(double loss) {
  progress_.losses.push_back(loss);
  if (losses_file_ != nullptr) write_loss(progress_.step, loss);
}

template <class T>
void Trainer<T>::write_loss(uint64_t step, double loss) {
  const auto number = static_cast<unsigned long long>(step);
  if (std::fprintf(losses_file_, "%llu %.17g\n", number, loss) < 0) {
    fail("--losses: {}: {}", options_.losses_file, std::strerror(errno));
  }
}

template <class T>
void Trainer<T>::save() {
  if (!first() || options_.checkpoint_file.empty()) return;
  const std::string problem =
      write_checkpoint(options_.checkpoint_file, progress_, bytes_of(state()));
  if (!problem.empty()) fail("--checkpoint: {}", problem);
  say("checkpoint: step {}\n", progress_.step);
  std::fflush(stdout);
}

// Every test image once, over all ranks.
template <class T>
double Trainer<T>::test_accuracy() {
  exchange_->before_forward();
  uniSamplerConfig_t config = UNI_SAMPLER_CONFIG_INITIALIZER;
  config.evaluation = 1;
  uniSampler_t sampler = nullptr;
  must(uniSamplerCreate(&sampler, data_.test.size(), ranks_, rank_, &config), "uniSamplerCreate");
  uint64_t counts[2] = {0, 0};  // right, all
  while (true) {
    const std::vector<uint64_t> images = next_images(sampler, 64);
    if (images.empty()) break;
    network_.forward(data_.test, images);
    counts[0] += network_.correct();
    counts[1] += images.size();
  }
  must(uniSamplerDestroy(sampler), "uniSamplerDestroy");
  must(uniAllReduce(counts, counts, 2, uniUint64, uniSum, comm_, nullptr), "uniAllReduce");
  return static_cast<double>(counts[0]) / static_cast<double>(counts[1]);
}

template <class T>
void Trainer<T>::finish(double accuracy) {
  if (!first()) return;
  if (progress_.losses.empty()) fail("no step was made");
  say("done: {} steps on {} ranks, loss {:.4f}, test accuracy {:.2f} %\n", progress_.step, ranks_,
      progress_.losses.back(), 100 * accuracy);
  exchange_->print_summary();
  if (plot_file_ == nullptr) return;
  const std::string title =
      fmt::format("ddp-digits: {} ranks, batches of {}, test accuracy {:.2f} %", ranks_,
                  options_.batch, 100 * accuracy);
  const std::string picture = loss_plot(progress_.losses, title);
  const bool whole = std::fwrite(picture.data(), 1, picture.size(), plot_file_) == picture.size();
  if (std::fclose(plot_file_) != 0 || !whole)
    fail("--plot: {}: {}", options_.plot_file, std::strerror(errno));
}

template class Trainer<float>;
template class Trainer<double>;

}  // namespace digits
