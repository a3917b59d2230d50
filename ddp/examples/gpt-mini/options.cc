#include "ddp/examples/gpt-mini/options.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>

namespace gpt_mini {
namespace {

const std::map<std::string, uniBucketHook_t> kHooks = {{"none", nullptr},
                                                       {"allreduce", uniHookAllReduce},
                                                       {"fp16", uniHookFloat16Compress},
                                                       {"bf16", uniHookBfloat16Compress}};

void add_training(CLI::App* app, Options* o) {
  app->add_option("TEXT", o->text_file, "what to learn (" + o->text_file + ")")
      ->check(CLI::ExistingFile);
  app->add_option("--steps", o->steps, "how many (500)")->check(CLI::Range(1, 1000000));
  app->add_option("--batch", o->batch, "sequences a step, of all ranks together (16)")
      ->check(CLI::Range(1, 65536));
  app->add_option("--context", o->context, "characters a sequence (64)")
      ->check(CLI::Range(1, 4096));
  app->add_option("--layers", o->layers, "blocks (2)")->check(CLI::Range(1, 64));
  app->add_option("--heads", o->heads, "of attention (4)")->check(CLI::Range(1, 64));
  app->add_option("--width", o->width, "of the residual stream (64)")->check(CLI::Range(1, 8192));
  app->add_option("--lr", o->learning_rate, "AdamW's learning rate (0.002)")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--seed", o->seed, "of the first parameters and of the batches (0)");
}

void add_parallel(CLI::App* app, Options* o, std::string* hook) {
  CLI::Option* const hooks = app->add_option("--hook", *hook, "none, allreduce, fp16, bf16 (none)")
                                 ->check(CLI::IsMember(&kHooks).description(""));
  CLI::Option* const views =
      app->add_flag("--bucket-views", o->bucket_views, "gradients live in the buckets");
  CLI::Option* const bucket =
      app->add_option("--bucket-kib", o->bucket_kib, "size of a bucket (64: the model is small)")
          ->check(CLI::Range(1, 1 << 20));
  app->add_option("--dp", o->replicas, "DataParallel: replicas are threads of this one process")
      ->check(CLI::Range(1, 64))
      ->excludes(hooks, views, bucket);
}

void add_files(CLI::App* app, Options* o) {
  app->add_option("--losses", o->losses_file, "write step and loss, a line a step");
  app->add_option("--plot", o->plot_file, "draw the losses, as SVG");
  app->add_option("--checkpoint", o->checkpoint_file,
                  "write the training's state here, and go on from it when it is there");
  app->add_option("--checkpoint-every", o->checkpoint_every, "steps (100)")
      ->check(CLI::Range(1, 1000000000));
}

}  // namespace

int read_options(int argc, char** argv, Options* options) {
  CLI::App app(
      "Trains a small transformer on the characters of a text: alone, as DataParallel, or as "
      "DistributedDataParallel under uni-run.",
      "ddp-gpt-mini");
  app.footer("One process: ddp-gpt-mini. Two: uni-run -n 2 ddp-gpt-mini. The losses are the same.");
  std::string hook = "none";
  add_training(&app, options);
  add_parallel(&app, options, &hook);
  add_files(&app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? 0 : 2;
  }
  options->hook = kHooks.at(hook);
  if (options->width % options->heads != 0) {
    std::cerr << "--width is not a multiple of --heads\n";
    return 2;
  }
  return -1;
}

}  // namespace gpt_mini
