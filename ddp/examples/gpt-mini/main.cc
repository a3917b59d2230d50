// ddp-gpt-mini: trains a small transformer on the characters of a text: alone, as DataParallel, or
// as DistributedDataParallel under uni-run. The training loop is one; what differs is in Wrapped.
#include <torch/nn/functional/loss.h>
#include <torch/optim/adamw.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp/examples/digits/plot.h"
#include "ddp/examples/gpt-mini/model.h"
#include "ddp/examples/gpt-mini/options.h"
#include "ddp/examples/gpt-mini/text.h"
#include "unisono/torch.h"

namespace gpt_mini {
namespace {

using torch::Tensor;
using unisono::ddp::check;
using unisono::ddp::DataParallel;
using unisono::ddp::DistributedDataParallel;

struct Job {
  Job() {
    uniConfig_t config = UNI_CONFIG_INITIALIZER;
    config.name = "ddp-gpt-mini";
    check(uniCommInitUrl(&comm, "env://", -1, -1, &config), "the communicator");
    check(uniCommCount(comm, &ranks), "the number of ranks");
    check(uniCommUserRank(comm, &rank), "the rank");
  }
  ~Job() { (void)uniCommDestroy(comm); }
  Job(const Job&) = delete;
  uniComm_t comm = nullptr;
  int ranks = 1, rank = 0;
};

// The model, alone or in one of the two wrappers.
class Wrapped {
 public:
  Wrapped(Gpt model, const Job& job, const Options& options) : model_(std::move(model)) {
    TORCH_CHECK(options.replicas == 0 || job.ranks == 1, "--dp is for one process; this job has ",
                job.ranks);
    if (options.replicas > 0) {
      data_parallel_.emplace(model_, options.replicas);
    } else if (job.ranks > 1) {
      unisono::ddp::DistributedDataParallelOptions ddp;
      ddp.hook = options.hook;
      ddp.gradient_as_bucket_view = options.bucket_views;
      ddp.bucket_bytes = static_cast<size_t>(options.bucket_kib) * 1024;
      ddp.first_bucket_bytes = std::min(ddp.first_bucket_bytes, ddp.bucket_bytes);
      distributed_.emplace(model_, job.comm, ddp);
    }
  }
  Tensor forward(const Tensor& characters) {
    if (distributed_) return distributed_->forward(characters);
    if (data_parallel_) return data_parallel_->forward(characters);
    return model_->forward(characters);
  }
  void print_statistics() const {
    if (!distributed_) return;
    const uniReducerStats_t stats = distributed_->stats();
    std::printf(
        "last step: backward %.1f ms, communication %.1f ms, of that exposed %.1f ms; %d "
        "buckets, %.2f MiB of gradients, %.2f MiB given to collectives\n",
        stats.backward_us / 1e3, stats.communication_us / 1e3, stats.exposed_us / 1e3,
        stats.buckets, static_cast<double>(stats.gradient_bytes) / (1 << 20),
        static_cast<double>(stats.wire_bytes) / (1 << 20));
  }

 private:
  Gpt model_;
  std::optional<DataParallel<Gpt>> data_parallel_;
  std::optional<DistributedDataParallel<Gpt>> distributed_;
};

Tensor loss_of(const Tensor& logits, const Tensor& target) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), target.flatten());
}

class Training {
 public:
  Training(const Options& options, const Job& job, const Text& text)
      : options_(options),
        job_(job),
        text_(text),
        model_(make_model()),
        wrapped_(model_, job, options),
        optimizer_(model_->parameters(), torch::optim::AdamWOptions(options.learning_rate)) {
    TORCH_CHECK(options.batch % job.ranks == 0, "--batch ", options.batch,
                " is not a multiple of the ", job.ranks, " ranks");
    resume();
  }

  void run() {
    const auto begin = std::chrono::steady_clock::now();
    const size_t first = losses_.size();
    while (losses_.size() < static_cast<size_t>(options_.steps)) {
      step();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      report(took.count(), losses_.size() - first);
      if (losses_.size() % static_cast<size_t>(options_.checkpoint_every) == 0) save();
    }
    save();
    finish();
  }

 private:
  Gpt make_model() const {
    torch::manual_seed(options_.seed);
    return Gpt(GptShape{text_.vocabulary(), options_.context, options_.layers, options_.heads,
                        options_.width});
  }

  void step() {
    const auto all =
        text_.batch(options_.batch, options_.seed, static_cast<int64_t>(losses_.size()));
    const int64_t rows = options_.batch / job_.ranks;
    const Tensor input = all.input.narrow(0, job_.rank * rows, rows);
    const Tensor target = all.target.narrow(0, job_.rank * rows, rows);
    optimizer_.zero_grad();
    const Tensor loss = loss_of(wrapped_.forward(input), target);
    loss.backward();
    optimizer_.step();
    auto mean = loss.item<double>();
    check(uniAllReduce(&mean, &mean, 1, uniFloat64, uniAvg, job_.comm, nullptr), "the loss");
    losses_.push_back(mean);
  }

  // A line that is written over on a terminal, and now and then one elsewhere.
  void report(double seconds, size_t steps) const {
    if (job_.rank != 0) return;
    const size_t step = losses_.size(), total = static_cast<size_t>(options_.steps);
    const bool on_terminal = ::isatty(STDOUT_FILENO) != 0;
    if (!on_terminal && step % std::max<size_t>(total / 10, 1) != 0 && step != total) return;
    const double rate = static_cast<double>(steps) * options_.batch * options_.context / seconds;
    std::printf("%sstep %zu/%zu  loss %.4f  %.0f characters/s%s", on_terminal ? "\r" : "", step,
                total, losses_.back(), rate, on_terminal && step != total ? "   " : "   \n");
    std::fflush(stdout);
  }

  void finish() {
    double validation = 0;
    {
      const torch::NoGradGuard no_grad;
      const auto kept_back = text_.validation(64);
      validation = loss_of(model_->forward(kept_back.input), kept_back.target).item<double>();
    }
    if (job_.rank != 0) return;
    std::printf("final loss %.6f, on the part kept back %.6f\n", losses_.back(), validation);
    wrapped_.print_statistics();
    if (!options_.losses_file.empty()) {
      std::string lines;
      char line[64];
      for (size_t i = 0; i < losses_.size(); i++) {
        std::snprintf(line, sizeof line, "%zu %.9g\n", i + 1, losses_[i]);
        lines += line;
      }
      write(options_.losses_file, lines);
    }
    if (!options_.plot_file.empty()) {
      write(options_.plot_file, digits::loss_plot(losses_, "ddp-gpt-mini"));
    }
  }

  static void write(const std::string& file, const std::string& content) {
    std::ofstream out(file, std::ios::binary);
    out << content << std::flush;
    TORCH_CHECK(out.good(), file, " cannot be written");
  }

  void save() {
    if (options_.checkpoint_file.empty()) return;
    unisono::ddp::save_checkpoint(
        job_.comm, options_.checkpoint_file, [&](torch::serialize::OutputArchive& archive) {
          torch::serialize::OutputArchive model, optimizer;
          model_->save(model);
          optimizer_.save(optimizer);
          archive.write("model", model);
          archive.write("optimizer", optimizer);
          archive.write("losses", torch::tensor(losses_, torch::kFloat64));
        });
  }

  void resume() {
    if (options_.checkpoint_file.empty()) return;
    const auto take = [&](torch::serialize::InputArchive& archive) {
      torch::serialize::InputArchive model, optimizer;
      Tensor losses;
      archive.read("model", model);
      archive.read("optimizer", optimizer);
      archive.read("losses", losses);
      model_->load(model);
      optimizer_.load(optimizer);
      losses_.assign(losses.data_ptr<double>(), losses.data_ptr<double>() + losses.numel());
    };
    if (unisono::ddp::load_checkpoint(job_.comm, options_.checkpoint_file, take) &&
        job_.rank == 0) {
      std::printf("going on from %s, step %zu\n", options_.checkpoint_file.c_str(), losses_.size());
    }
  }

  const Options& options_;
  const Job& job_;
  const Text& text_;
  Gpt model_;
  Wrapped wrapped_;
  torch::optim::AdamW optimizer_;
  std::vector<double> losses_;
};

}  // namespace
}  // namespace gpt_mini

int main(int argc, char** argv) {
  gpt_mini::Options options;
  const int status = gpt_mini::read_options(argc, argv, &options);
  if (status >= 0) return status;
  try {
    const gpt_mini::Job job;
    const gpt_mini::Text text(options.text_file, options.context);
    gpt_mini::Training(options, job, text).run();
    return 0;
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "ddp-gpt-mini: %s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddp-gpt-mini: %s\n", error.what());
  }
  return 1;
}
