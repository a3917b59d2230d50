// ddp-bench: what averaging gradients costs a training step. Run it under a launcher:
// uni-run -n 2 ddp-bench.
#include <sys/resource.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ddp/bench/backward.h"
#include "ddp/bench/model.h"
#include "unisono/ddp.h"
#include "unisono/unisono.h"

namespace ddp_bench {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> models = {"resnet50", "gpt2"};
  size_t batch = 64;
  int steps = 10, warmup = 3;
  double bucket_mib = 25;
  bool views = false, print_model = false;
  std::string hook = "none", transport, json_file;
};

[[noreturn]] void fail(const std::string& words) {
  fprintf(stderr, "ddp-bench: %s\n", words.c_str());
  fflush(nullptr);
  _Exit(3);
}

void must(uniResult_t result, const char* what) {
  if (result != uniSuccess) fail(std::string(what) + ": " + uniGetLastError(nullptr));
}

double now_ms() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// One model on this rank: its gradients, its reducer, and steps with and without communication.
class Bench {
 public:
  Bench(const Options& options, const std::string& name, uniComm_t comm)
      : options_(options), name_(name), comm_(comm) {
    must(uniCommCount(comm, &ranks_), "uniCommCount");
    must(uniCommUserRank(comm, &rank_), "uniCommUserRank");
    std::string problem;
    model_ = load_model(name, &problem);
    if (model_.empty()) fail(problem);
    backward_ = std::make_unique<Backward>(model_, options.batch, static_cast<unsigned>(rank_) + 1);
    make_reducer();
  }
  ~Bench() { must(uniReducerDestroy(reducer_), "uniReducerDestroy"); }
  Bench(const Bench&) = delete;

  Json run() {
    for (int i = 0; i < options_.warmup; i++) {
      (void)compute_only();
      (void)step();
    }
    const size_t wrong = check();
    std::vector<double> alone, whole, exposed;
    for (int i = 0; i < options_.steps; i++) {
      alone.push_back(compute_only());
      whole.push_back(step());
      exposed.push_back(std::max(0.0, whole.back() - alone.back()));
    }
    uniReducerStats_t stats{};
    stats.size = sizeof stats;
    must(uniReducerStats(reducer_, &stats), "uniReducerStats");
    return {{"model", name_},
            {"parameters", stats.parameters},
            {"gradient_bytes", stats.gradient_bytes},
            {"buckets", stats.buckets},
            {"ranks", ranks_},
            {"step_ms", median(whole)},
            {"compute_ms", median(alone)},
            {"exposed_ms", median(exposed)},
            {"communication_ms", stats.communication_us * 1e-3},
            {"overlap_ms", stats.overlap_us * 1e-3},
            {"wire_bytes", stats.wire_bytes},
            {"bucket_memory_bytes", stats.memory_bytes},
            {"peak_mib", peak_mib()},
            {"wrong", wrong}};
  }

 private:
  void make_reducer() {
    std::vector<uniParameter_t> parameters;
    size_t total = 0;
    for (const Shape& shape : model_) total += shape.count();
    if (!options_.views) gradients_.resize(total);
    size_t at = 0;
    for (const Shape& shape : model_) {
      parameters.push_back({shape.name.c_str(), options_.views ? nullptr : &gradients_[at],
                            uniFloat32, static_cast<int>(shape.dims.size()), shape.dims.data()});
      at += shape.count();
    }
    uniReducerConfig_t config = UNI_REDUCER_CONFIG_INITIALIZER;
    config.bucket_bytes = static_cast<size_t>(options_.bucket_mib * 1048576);
    config.first_bucket_bytes = std::min(config.first_bucket_bytes, config.bucket_bytes);
    config.bucket_views = options_.views ? 1 : 0;
    if (options_.hook == "fp16") config.hook = &uniHookFloat16Compress;
    if (options_.hook == "bf16") config.hook = &uniHookBfloat16Compress;
    must(uniReducerCreate(&reducer_, comm_, parameters.data(), static_cast<int>(parameters.size()),
                          &config),
         "uniReducerCreate");
  }

  float* gradient_of(size_t index) {
    void* grad = nullptr;
    must(uniReducerGradient(reducer_, static_cast<int>(index), &grad), "uniReducerGradient");
    return static_cast<float*>(grad);
  }

  // On the slowest rank, milliseconds.
  double slowest(double ms) {
    must(uniAllReduce(&ms, &ms, 1, uniFloat64, uniMax, comm_, nullptr), "uniAllReduce");
    return ms;
  }

  double compute_only() {
    must(uniBarrier(comm_, nullptr), "uniBarrier");
    const double start = now_ms();
    for (size_t i = model_.size(); i-- > 0;) backward_->gradient(i, gradient_of(i));
    return slowest(now_ms() - start);
  }

  double step() {
    must(uniBarrier(comm_, nullptr), "uniBarrier");
    const double start = now_ms();
    must(uniReducerBeginBackward(reducer_, 1), "uniReducerBeginBackward");
    for (size_t i = model_.size(); i-- > 0;) {
      backward_->gradient(i, gradient_of(i));
      must(uniReducerMarkReady(reducer_, static_cast<int>(i)), "uniReducerMarkReady");
    }
    must(uniReducerFinish(reducer_), "uniReducerFinish");
    return slowest(now_ms() - start);
  }

  // Three elements of each gradient against the mean over ranks of what each should have computed.
  size_t check() {
    std::vector<double> expected;
    std::vector<float> found;
    for (size_t i = 0; i < model_.size(); i++) {
      const size_t columns = model_[i].columns(), last = model_[i].count() - 1;
      for (const size_t element : {size_t{0}, last / 2, last}) {
        expected.push_back(backward_->expected(i, element / columns, element % columns));
        found.push_back(gradient_of(i)[element]);
      }
    }
    must(uniAllReduce(expected.data(), expected.data(), expected.size(), uniFloat64, uniAvg, comm_,
                      nullptr),
         "uniAllReduce");
    const double tolerance = options_.hook == "none" ? 1e-4 : options_.hook == "fp16" ? 1e-2 : 0.1;
    uint64_t wrong = 0;
    for (size_t i = 0; i < found.size(); i++) {
      wrong += std::abs(found[i] - expected[i]) > tolerance * (1 + std::abs(expected[i]));
    }
    must(uniAllReduce(&wrong, &wrong, 1, uniUint64, uniSum, comm_, nullptr), "uniAllReduce");
    return wrong;
  }

  const Options& options_;
  const std::string name_;
  const uniComm_t comm_;
  int ranks_ = 1, rank_ = 0;
  std::vector<Shape> model_;
  std::vector<float> gradients_;
  std::unique_ptr<Backward> backward_;
  uniReducer_t reducer_ = nullptr;
};

// NaN is within every range of CLI11.
std::string finite(const std::string& text) {
  return std::isfinite(std::strtod(text.c_str(), nullptr)) ? "" : "'" + text + "' is not finite";
}

Options parse(int argc, char** argv) {
  Options o;
  CLI::App app{
      "Cost of averaging gradients in a training step. Run it under a launcher: uni-run -n 2 "
      "ddp-bench",
      "ddp-bench"};
  app.add_option("--model", o.models, "resnet50, gpt2, or files of lines 'name dim dim ...'")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--batch", o.batch, "rows of each matrix product")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--steps", o.steps, "timed steps of each kind")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--warmup", o.warmup, "steps before")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--bucket-mib", o.bucket_mib, "bucket size")
      ->check(CLI::Range(0.001, 65536.0))
      ->check(finite)
      ->capture_default_str();
  app.add_flag("--print-model", o.print_model,
               "print the models' shapes, as files that --model reads, and measure nothing");
  app.add_flag("--bucket-views", o.views, "gradients live in their buckets");
  app.add_option("--hook", o.hook, "compression")
      ->check(CLI::IsMember({"none", "fp16", "bf16"}))
      ->capture_default_str();
  app.add_option("--transport", o.transport, "shm, tcp, or a list");
  app.add_option("-J,--json", o.json_file, "also write the results to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e) == 0 ? 0 : 2);
  }
  return o;
}

void print_head(const Options& o, int ranks) {
  printf(
      "# ddp-bench: %d ranks, batch %zu, buckets %.4g MiB%s, hook %s; medians of %d steps, with "
      "and without\n"
      "# communication in turns. exposed: what the step takes longer than its computation.\n",
      ranks, o.batch, o.bucket_mib, o.views ? " (gradients live in them)" : "", o.hook.c_str(),
      o.steps);
  printf("# %-12s %7s %8s %8s %10s %10s %10s %10s %9s %9s %6s\n", "model", "params", "MiB",
         "buckets", "step ms", "compute", "exposed", "hidden", "wire MiB", "extra MiB", "wrong");
}

void print_row(const Json& r, const Options& o) {
  const auto mib = [&](const char* key) { return r[key].get<double>() / 1048576; };
  printf("  %-12s %7d %8.1f %8d %10.2f %10.2f %10.2f %10.2f %9.1f %9.1f %6zu\n",
         r["model"].get<std::string>().c_str(), r["parameters"].get<int>(), mib("gradient_bytes"),
         r["buckets"].get<int>(), r["step_ms"].get<double>(), r["compute_ms"].get<double>(),
         r["exposed_ms"].get<double>(), r["overlap_ms"].get<double>(), mib("wire_bytes"),
         o.views ? 0.0 : mib("bucket_memory_bytes"), r["wrong"].get<size_t>());
  fflush(stdout);
}

void must_be_written() {
  errno = 0;
  if (fflush(stdout) != 0 || ferror(stdout) != 0) {
    fail(std::string("standard output: ") + (errno != 0 ? strerror(errno) : "cannot be written"));
  }
}

int print_models(const Options& options) {
  for (const std::string& name : options.models) {
    std::string problem;
    const std::vector<Shape> model = load_model(name, &problem);
    if (model.empty()) fail(problem);
    printf("# %s\n", name.c_str());
    for (const Shape& shape : model) {
      printf("%s", shape.name.c_str());
      for (const size_t dim : shape.dims) printf(" %zu", dim);
      printf("\n");
    }
  }
  return 0;
}

int run(const Options& options) {
  uniConfig_t config = UNI_CONFIG_INITIALIZER;
  if (!options.transport.empty()) config.transports = options.transport.c_str();
  uniComm_t comm = nullptr;
  must(uniCommInitUrl(&comm, nullptr, -1, -1, &config), "uniCommInitUrl");
  int rank = 0, ranks = 1;
  must(uniCommUserRank(comm, &rank), "uniCommUserRank");
  must(uniCommCount(comm, &ranks), "uniCommCount");
  if (rank == 0) print_head(options, ranks);
  Json all = Json::array();
  size_t wrong = 0;
  for (const std::string& name : options.models) {
    all.push_back(Bench(options, name, comm).run());
    wrong += all.back()["wrong"].get<size_t>();
    if (rank == 0) print_row(all.back(), options);
  }
  must(uniCommDestroy(comm), "uniCommDestroy");
  if (rank == 0 && !options.json_file.empty()) {
    std::ofstream file(options.json_file);
    file << Json{{"hook", options.hook}, {"bucket_views", options.views}, {"results", all}}.dump(1)
         << "\n";
    if (!file.flush()) fail(options.json_file + ": cannot be written");
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ddp_bench

int main(int argc, char** argv) {
  const ddp_bench::Options options = ddp_bench::parse(argc, argv);
  const int status =
      options.print_model ? ddp_bench::print_models(options) : ddp_bench::run(options);
  ddp_bench::must_be_written();
  return status;
}
