// ddp-digits: trains a small network on handwritten digits, as one process, as many (uni-run), or
// as threads of one. Everything it has to do with other ranks is in exchange.cc and trainer.cc.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "ddp/examples/digits/check.h"
#include "ddp/examples/digits/dataset.h"
#include "ddp/examples/digits/options.h"
#include "ddp/examples/digits/trainer.h"

namespace digits {
namespace {

Split load_data(const Options& options) {
  std::string text, problem;
  if (!options.data_file.empty()) {
    std::ifstream in(options.data_file, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), {});
    if (in.bad()) fail("--data: {}: cannot be read", options.data_file);
  }
  Split data = read_csv(options.data_file.empty() ? embedded_csv() : text, &problem);
  if (!problem.empty()) fail("--data: {}: {}", options.data_file, problem);
  return data;
}

const char* memory_words = "";

// Of operator new, so it allocates nothing. Not a catch in main, which would miss the threads of
// --dp; of those the first one speaks.
void out_of_memory() {
  static std::atomic_flag spoken;
  while (spoken.test_and_set()) pause();
  std::fflush(stdout);
  std::fprintf(stderr, "ddp-digits: not enough memory for %s\n", memory_words);
  std::_Exit(1);
}

void train(uniComm_t comm, const Options& options, const Split& data) {
  if (options.type == Type::kFloat64) {
    Trainer<double>(comm, options, data).run();
  } else {
    Trainer<float>(comm, options, data).run();
  }
}

// DataParallel: the ranks are threads.
void train_replicas(const Options& options, const uniConfig_t& config, const Split& data) {
  std::vector<uniComm_t> comms(static_cast<size_t>(options.replicas));
  must(uniCommInitAll(comms.data(), options.replicas, &config), "uniCommInitAll");
  std::vector<std::thread> threads;
  for (uniComm_t comm : comms) {
    threads.emplace_back([comm, &options, &data] { train(comm, options, data); });
  }
  for (std::thread& thread : threads) thread.join();
  for (uniComm_t comm : comms) must(uniCommDestroy(comm), "uniCommDestroy");
}

void run(const Options& options) {
  const Split data = load_data(options);
  const std::string hidden = fmt::format("--hidden {}", fmt::join(options.hidden, " "));
  memory_words = hidden.c_str();
  std::set_new_handler(&out_of_memory);
  uniConfig_t config = UNI_CONFIG_INITIALIZER;
  config.name = "ddp-digits";
  config.reproducible = 1;  // A resumed run has other buckets than one that went on; same numbers.
  uniComm_t comm = nullptr;
  must(uniCommInitUrl(&comm, "env://", -1, -1, &config), "uniCommInitUrl");
  int ranks = 0;
  must(uniCommCount(comm, &ranks), "uniCommCount");
  if (options.replicas > 0 && ranks > 1) fail("--dp: is for one process; this job has {}", ranks);
  if (options.replicas > 0) {
    train_replicas(options, config, data);
  } else {
    train(comm, options, data);
  }
  must(uniCommDestroy(comm), "uniCommDestroy");
  std::set_new_handler(nullptr);
}

}  // namespace
}  // namespace digits

int main(int argc, char** argv) {
  digits::Options options;
  const int status = digits::read_options(argc, argv, &options);
  if (status >= 0) return status;
  digits::run(options);
  return digits::said_all() ? 0 : 3;
}
