#include "ddp/examples/digits/options.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

namespace digits {
namespace {

const std::map<std::string, Type> kTypes = {{"f32", Type::kFloat32}, {"f64", Type::kFloat64}};
const std::map<std::string, Hook> kHooks = {{"none", Hook::kNone},
                                            {"allreduce", Hook::kAllReduce},
                                            {"fp16", Hook::kFloat16},
                                            {"bf16", Hook::kBfloat16}};
constexpr int kMostUnits = 65536;
constexpr double kMostRate = 1e9;

// NaN is within every range of CLI11.
std::string finite(const std::string& text) {
  return std::isfinite(std::strtod(text.c_str(), nullptr)) ? "" : "'" + text + "' is not finite";
}

void add_training(CLI::App* app, Options* o) {
  app->add_option_function<std::string>(
         "--type", [o](const std::string& word) { o->type = kTypes.at(word); }, "f32 or f64 (f32)")
      ->check(CLI::IsMember({"f32", "f64"}).description(""));
  app->add_option("--hidden", o->hidden, "units of the hidden layers (64 32)")
      ->check(CLI::Range(1, kMostUnits));
  app->add_option("--epochs", o->epochs, "how many (15)")->check(CLI::Range(1, 1000000));
  app->add_option("--batch", o->batch, "images a step, of all ranks together (48)")
      ->check(CLI::Range(1, 1000000));
  app->add_option("--lr", o->learning_rate, "learning rate (0.1)")
      ->check(CLI::Range(0.0, kMostRate))
      ->check(finite);
  app->add_option("--momentum", o->momentum, "of SGD (0.9)")
      ->check(CLI::Range(0.0, 1.0))
      ->check(finite);
  app->add_option("--seed", o->seed, "of the first parameters and of the order of images (0)");
  app->add_option("--data", o->data_file, "another CSV of 8x8 digits instead of the built-in one")
      ->check(CLI::ExistingFile);
}

void add_parallel(CLI::App* app, Options* o) {
  CLI::Option* const hook =
      app->add_option_function<std::string>(
             "--hook", [o](const std::string& word) { o->hook = kHooks.at(word); },
             "none, allreduce, fp16 or bf16 (none)")
          ->check(CLI::IsMember({"none", "allreduce", "fp16", "bf16"}).description(""));
  CLI::Option* const views =
      app->add_flag("--bucket-views", o->bucket_views, "gradients live in the buckets");
  CLI::Option* const bucket =
      app->add_option("--bucket-kib", o->bucket_kib, "size of a bucket (8: the model is small)")
          ->check(CLI::Range(1, 1 << 20));
  app->add_option("--dp", o->replicas, "DataParallel: replicas are threads of this one process")
      ->check(CLI::Range(1, 64))
      ->excludes(hook, views, bucket);
}

void add_files(CLI::App* app, Options* o) {
  app->add_option("--checkpoint", o->checkpoint_file,
                  "write the training's state here, and go on from it when it is there");
  app->add_option("--checkpoint-every", o->checkpoint_every, "steps (an epoch's)")
      ->check(CLI::Range(1, 1000000000));
  app->add_option("--losses", o->losses_file, "write step and loss, a line a step");
  app->add_option("--plot", o->plot_file, "draw the losses, as SVG");
}

}  // namespace

int read_options(int argc, char** argv, Options* options) {
  CLI::App app(
      "Trains a small network on handwritten digits: alone, or data-parallel under uni-run.",
      "ddp-digits");
  app.footer(
      "One process: ddp-digits. Two: uni-run -n 2 ddp-digits. The losses are the same.\n"
      "Data: Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine\n"
      "Learning Repository, doi:10.24432/C50P49, CC BY 4.0.");
  add_training(&app, options);
  add_parallel(&app, options);
  add_files(&app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? 0 : 2;
  }
  return -1;
}

}  // namespace digits
