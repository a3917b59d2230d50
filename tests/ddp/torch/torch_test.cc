// libunisono_torch by itself; ranks are threads of this process. torch_against_pytorch.py compares
// whole trainings with PyTorch's.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "unisono/torch.h"

namespace {

using torch::Tensor;
using unisono::ddp::DataParallel;
using unisono::ddp::DistributedDataParallel;
using unisono::ddp::DistributedDataParallelOptions;

constexpr int kRanks = 3;
constexpr uint64_t kSeed = 715;
constexpr int64_t kWidth = 5;

// body on each of `ranks` ranks; what each has thrown, "" if nothing.
std::vector<std::string> on_ranks(int ranks, const std::function<void(int, uniComm_t)>& body) {
  uniConfig_t config = UNI_CONFIG_INITIALIZER;
  config.timeout_ms = 60000;
  std::vector<uniComm_t> comms(static_cast<size_t>(ranks));
  EXPECT_EQ(uniCommInitAll(comms.data(), ranks, &config), uniSuccess) << uniGetLastError(nullptr);
  std::vector<std::string> words(comms.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; rank++) {
    threads.emplace_back([&, rank] {
      try {
        body(rank, comms[static_cast<size_t>(rank)]);
      } catch (const c10::Error& error) {
        words[static_cast<size_t>(rank)] = error.what_without_backtrace();
      } catch (const std::exception& error) {
        words[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uniComm_t comm : comms) (void)uniCommDestroy(comm);
  return words;
}

void expect_all(const std::vector<std::string>& words, const std::string& part) {
  for (size_t rank = 0; rank < words.size(); rank++) {
    if (part.empty()) {
      EXPECT_EQ(words[rank], "") << "rank " << rank;
    } else {
      EXPECT_NE(words[rank].find(part), std::string::npos)
          << "rank " << rank << ": " << words[rank];
    }
  }
}

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { NetImpl::reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(kWidth, 7));
    norm = register_module("norm", torch::nn::BatchNorm1d(7));
    second = register_module("second", torch::nn::Linear(7, 2));
    spare = register_module("spare", torch::nn::Linear(2, 2));
  }
  Tensor forward(const Tensor& x) { return second(torch::tanh(first(x))); }
  // With an argument that is not cut, and one that is.
  Tensor forward(const Tensor& x, const Tensor& scale, double more, bool with_spare) {
    Tensor y = forward(x) * scale * more;
    return with_spare ? spare(y) : y;
  }
  torch::nn::Linear first = nullptr, second = nullptr, spare = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};
TORCH_MODULE(Net);

// Its backward throws, when told to.
std::atomic<bool> fails_in_backward{false};
struct Fuse : torch::autograd::Function<Fuse> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    TORCH_CHECK(!fails_in_backward, "the fuse is blown");
    return gradients;
  }
};

struct ChainImpl : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(kWidth, 2));
  bool skips_first = false;
  std::tuple<Tensor, std::vector<Tensor>> forward(const Tensor& x) {
    const Tensor middle = skips_first ? x : Fuse::apply(first(x));
    return {second(middle), {middle}};
  }
};
TORCH_MODULE(Chain);

Tensor input_of(int rank, int step = 0, int64_t rows = 4) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(
      kSeed + 100 * static_cast<uint64_t>(step) + static_cast<uint64_t>(rank));
  return torch::randn({rows, kWidth}, generator);
}

void seed_and_fill(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  for (Tensor& parameter : module.parameters()) {
    parameter.copy_(torch::randn(parameter.sizes(), generator));
  }
}

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / name()) {
    std::filesystem::create_directory(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const char* leaf) const { return (path_ / leaf).string(); }

 private:
  static std::string name() {
    static std::atomic<int> made{0};
    return "unisono_torch_test." + std::to_string(::getpid()) + "." + std::to_string(made++);
  }
  const std::filesystem::path path_;
};

// ---- DistributedDataParallel ----

TEST(DistributedDataParallel, TakesRankZerosParametersAndBuffers) {
  expect_all(on_ranks(kRanks,
                      [](int rank, uniComm_t comm) {
                        Net net;
                        {
                          const torch::NoGradGuard no_grad;
                          for (Tensor& of : net->parameters()) of.fill_(rank + 1);
                          for (Tensor& of : net->buffers()) of.fill_(rank + 1);
                        }
                        DistributedDataParallel ddp(net, comm);
                        for (const Tensor& of : net->parameters()) {
                          EXPECT_TRUE(of.eq(1).all().item<bool>());
                        }
                        for (const Tensor& of : net->buffers()) {
                          EXPECT_TRUE(of.eq(1).all().item<bool>());
                        }
                      }),
             "");
}

TEST(DistributedDataParallel, AModelThatDiffersFailsEverywhereNamingParameterRankAndShapes) {
  struct Odd : torch::nn::Module {
    explicit Odd(int64_t rows) { weight = register_parameter("weight", torch::zeros({rows, 3})); }
    Tensor forward(const Tensor& x) { return x.mm(weight); }
    Tensor weight;
  };
  const auto words = on_ranks(kRanks, [](int rank, uniComm_t comm) {
    DistributedDataParallel ddp(std::make_shared<Odd>(rank == 2 ? 5 : 4), comm);
  });
  for (const char* part : {"parameter weight", "rank 2", "[5, 3]", "rank 0", "[4, 3]"}) {
    expect_all(words, part);
  }
}

TEST(DistributedDataParallel, AModelWithoutTrainableParametersIsRefused) {
  expect_all(on_ranks(2,
                      [](int, uniComm_t comm) {
                        Net net;
                        for (Tensor& of : net->parameters()) of.set_requires_grad(false);
                        DistributedDataParallel ddp(net, comm);
                      }),
             "no parameter that requires a gradient");
}

void expect_views(bool as_views) {
  expect_all(on_ranks(kRanks,
                      [&](int rank, uniComm_t comm) {
                        DistributedDataParallelOptions options;
                        options.gradient_as_bucket_view = as_views;
                        options.bucket_bytes = options.first_bucket_bytes = 64;
                        Chain chain;
                        {
                          DistributedDataParallel ddp(chain, comm, options);
                          for (int step = 0; step < 3; step++) {
                            chain->zero_grad(step != 1);
                            std::get<0>(ddp.forward(input_of(rank, step))).sum().backward();
                            void* bucket = nullptr;
                            ASSERT_EQ(uniReducerGradient(ddp.core().reducer(), 0, &bucket),
                                      uniSuccess);
                            EXPECT_EQ(chain->first->weight.grad().data_ptr() == bucket, as_views);
                          }
                          EXPECT_EQ(ddp.stats().rebuilt, 1);
                          EXPECT_GT(ddp.stats().buckets, 1);
                        }
                        Chain whole;
                        const torch::NoGradGuard no_grad;
                        for (size_t i = 0; i < whole->parameters().size(); i++) {
                          whole->parameters()[i].copy_(chain->parameters()[i]);
                        }
                        const torch::AutoGradMode grad(true);
                        for (int other = 0; other < kRanks; other++) {
                          const Tensor x = input_of(other, 2);
                          (std::get<0>(whole->forward(x)).sum() / kRanks).backward();
                        }
                        // After the wrapper is gone: with views, its memory is.
                        for (size_t i = 0; i < whole->parameters().size(); i++) {
                          EXPECT_TRUE(torch::allclose(chain->parameters()[i].grad(),
                                                      whole->parameters()[i].grad(), 1e-5, 1e-6));
                        }
                      }),
             "");
}

TEST(DistributedDataParallel, GradientsAreTheAverageOverRanks) {
  expect_views(false);
}

TEST(DistributedDataParallel, WithBucketViewsGradientsLieInTheBuckets) {
  expect_views(true);
}

TEST(DistributedDataParallel, AParameterThatIsNotUsedIsNamedAndNoRankHangs) {
  const auto words = on_ranks(kRanks, [](int rank, uniComm_t comm) {
    Chain chain;
    chain->skips_first = rank == 1;
    DistributedDataParallel ddp(chain, comm);
    std::get<0>(ddp.forward(input_of(rank))).sum().backward();
  });
  EXPECT_NE(words[1].find("first.weight"), std::string::npos) << words[1];
  for (const std::string& of : words) EXPECT_NE(of, "");
}

TEST(DistributedDataParallel, AForwardBeforeTheLastBackwardIsFinishedNamesWhatIsMissing) {
  const auto words = on_ranks(2, [](int rank, uniComm_t comm) {
    Chain chain;
    DistributedDataParallel ddp(chain, comm);
    fails_in_backward = true;
    const Tensor loss = std::get<0>(ddp.forward(input_of(rank))).sum();
    EXPECT_ANY_THROW(loss.backward());
    (void)ddp.forward(input_of(rank));
  });
  fails_in_backward = false;
  expect_all(words, "first.weight");
}

TEST(DistributedDataParallel, AForwardWhoseOutputIsNotUsedNeedsNoBackward) {
  expect_all(on_ranks(2,
                      [](int rank, uniComm_t comm) {
                        Chain chain;
                        DistributedDataParallel ddp(chain, comm);
                        for (int step = 0; step < 3; step++) {
                          (void)ddp.forward(input_of(rank, step));
                          std::get<0>(ddp.forward(input_of(rank, step))).sum().backward();
                        }
                        EXPECT_EQ(ddp.stats().iterations, 3u);
                      }),
             "");
}

TEST(DistributedDataParallel, UnusedParametersAreFoundInTuplesAndVectors) {
  expect_all(on_ranks(2,
                      [](int rank, uniComm_t comm) {
                        DistributedDataParallelOptions options;
                        options.find_unused_parameters = true;
                        Chain chain;
                        DistributedDataParallel ddp(chain, comm, options);
                        // Both outputs are given, one is used: `second` is reachable, and has no
                        // gradient.
                        std::get<1>(ddp.forward(input_of(rank))).front().sum().backward();
                        EXPECT_TRUE(chain->first->weight.grad().defined());
                        EXPECT_FALSE(chain->second->weight.grad().defined());
                        EXPECT_EQ(ddp.stats().unused, 2);
                      }),
             "");
}

TEST(DistributedDataParallel, ParametersWhoseDataAreReplacedAreStillAveraged) {
  expect_all(on_ranks(2,
                      [](int rank, uniComm_t comm) {
                        Chain chain;
                        DistributedDataParallel ddp(chain, comm);
                        for (Tensor& of : chain->parameters()) of.set_data(torch::ones_like(of));
                        std::get<0>(ddp.forward(input_of(rank))).sum().backward();
                        std::vector<float> other(2);
                        const auto mine = chain->first->bias.grad()[0].item<float>();
                        ASSERT_EQ(uniAllGather(&mine, other.data(), 1, uniFloat32, comm, nullptr),
                                  uniSuccess);
                        EXPECT_EQ(other[0], other[1]);
                        EXPECT_EQ(ddp.stats().iterations, 1u);
                        chain->to(torch::kFloat64);
                        EXPECT_THROW((void)ddp.forward(input_of(rank).to(torch::kFloat64)),
                                     c10::Error);
                      }),
             "");
}

TEST(DistributedDataParallel, ASparseGradientIsRefusedOnEveryRank) {
  struct Table : torch::nn::Module {
    torch::nn::Embedding rows = register_module(
        "rows", torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)));
    Tensor forward(const Tensor& x) { return rows(x); }
  };
  for (const bool find_unused : {false, true}) {
    const auto words = on_ranks(2, [&](int, uniComm_t comm) {
      DistributedDataParallelOptions options;
      options.find_unused_parameters = find_unused;
      DistributedDataParallel ddp(std::make_shared<Table>(), comm, options);
      ddp.forward(torch::tensor({1, 2}, torch::kInt64)).sum().backward();
    });
    expect_all(words, "rows.weight is not dense");
  }
}

uniResult_t halve(void* arg, uniBucket_t* bucket) {
  static_cast<std::atomic<int>*>(arg)->fetch_add(1);
  unisono::ddp::bucket_tensor(*bucket).mul_(0.5);
  return uniHookAllReduce(nullptr, bucket);
}

TEST(DistributedDataParallel, AHookReplacesTheAverage) {
  std::atomic<int> calls{0};
  expect_all(on_ranks(2,
                      [&](int rank, uniComm_t comm) {
                        Chain chain;
                        seed_and_fill(*chain);
                        DistributedDataParallel ddp(chain, comm);
                        std::get<0>(ddp.forward(input_of(0))).sum().backward();
                        const Tensor plain = chain->first->weight.grad().clone();
                        chain->zero_grad();
                        ddp.set_hook(halve, &calls);
                        std::get<0>(ddp.forward(input_of(0))).sum().backward();
                        EXPECT_TRUE(torch::allclose(chain->first->weight.grad() * 2, plain))
                            << rank;
                        EXPECT_EQ(ddp.stats().wire_bytes, ddp.stats().gradient_bytes);
                      }),
             "");
  EXPECT_GE(calls.load(), 2);
}

TEST(DistributedDataParallel, JoinDividesByTheRanksThatStillHaveInput) {
  expect_all(on_ranks(kRanks,
                      [](int rank, uniComm_t comm) {
                        Chain chain;
                        seed_and_fill(*chain);
                        DistributedDataParallel ddp(chain, comm);
                        unisono::ddp::JoinOptions options;
                        options.divide_by_initial_world_size = false;
                        auto join = ddp.join(options);
                        // Equal inputs: the average over those that are there is the same always.
                        Tensor first;
                        for (int step = 0; step <= rank; step++) {
                          chain->zero_grad();
                          std::get<0>(ddp.forward(input_of(0))).sum().backward();
                          if (step == 0) first = chain->first->weight.grad().clone();
                          EXPECT_TRUE(torch::allclose(chain->first->weight.grad(), first));
                        }
                        join.finish();
                        // A shadow's own gradients are left alone.
                        EXPECT_TRUE(torch::allclose(chain->first->weight.grad(), first));
                      }),
             "");
}

TEST(DistributedDataParallel, JoinCanEndTheEpochForAllOnceARankIsDone) {
  const auto train = [](int rank, DistributedDataParallel<Chain>& ddp) {
    unisono::ddp::JoinOptions options;
    options.throw_on_early_termination = true;
    auto join = ddp.join(options);
    for (int step = 0; step < 2 + rank; step++) {
      std::get<0>(ddp.forward(input_of(rank, step))).sum().backward();
    }
    join.finish();
  };
  const auto words = on_ranks(kRanks, [&](int rank, uniComm_t comm) {
    DistributedDataParallel<Chain> ddp(Chain(), comm);
    EXPECT_THROW(train(rank, ddp), c10::Error);
    train(rank, ddp);  // the next epoch: nothing is broken
  });
  expect_all(words, "1 of 3 ranks have no input left");
}

TEST(DistributedDataParallel, AnExceptionWithinAJoinFailsTheOthersInsteadOfLettingThemWait) {
  const auto words = on_ranks(kRanks, [](int rank, uniComm_t comm) {
    Chain chain;
    DistributedDataParallel ddp(chain, comm);
    const auto join = ddp.join();
    std::get<0>(ddp.forward(input_of(rank))).sum().backward();
    TORCH_CHECK(rank != 1, "rank 1 stumbles");
    for (int step = 0; step < 3; step++) {
      std::get<0>(ddp.forward(input_of(rank))).sum().backward();
    }
  });
  EXPECT_NE(words[1].find("rank 1 stumbles"), std::string::npos) << words[1];
  EXPECT_NE(words[0], "");
  EXPECT_NE(words[2], "");
}

// ---- Checkpoints ----

TEST(Checkpoint, EveryRankGetsWhatRankZeroHasSaved) {
  const Folder folder;
  const std::string path = folder.file("model.pt");
  expect_all(on_ranks(kRanks,
                      [&](int rank, uniComm_t comm) {
                        Chain saved, taken;
                        seed_and_fill(*saved);
                        const auto take = [&](torch::serialize::InputArchive& archive) {
                          taken->load(archive);
                        };
                        EXPECT_FALSE(unisono::ddp::load_checkpoint(comm, path, take));
                        for (int time = 0; time < 2; time++) {  // the second replaces the first
                          unisono::ddp::save_checkpoint(
                              comm, path, [&](torch::serialize::OutputArchive& archive) {
                                EXPECT_EQ(rank, 0);
                                saved->save(archive);
                              });
                        }
                        EXPECT_TRUE(unisono::ddp::load_checkpoint(comm, path, take));
                        EXPECT_TRUE(torch::equal(taken->first->weight, saved->first->weight));
                        EXPECT_TRUE(torch::equal(taken->second->bias, saved->second->bias));
                      }),
             "");
  size_t files = 0;
  const auto parent = std::filesystem::path(path).parent_path();
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(parent)) files++;
  EXPECT_EQ(files, 1u);  // no unfinished ones
}

TEST(Checkpoint, WhatCannotBeWrittenOrReadFailsOnEveryRank) {
  const Folder folder;
  expect_all(
      on_ranks(kRanks,
               [&](int, uniComm_t comm) {
                 Chain chain;
                 unisono::ddp::save_checkpoint(
                     comm, folder.file("none/model.pt"),
                     [&](torch::serialize::OutputArchive& archive) { chain->save(archive); });
               }),
      "No such file or directory");
  const std::string path = folder.file("broken.pt");
  std::ofstream(path) << "not an archive";
  expect_all(on_ranks(kRanks,
                      [&](int, uniComm_t comm) {
                        (void)unisono::ddp::load_checkpoint(comm, path,
                                                            [](torch::serialize::InputArchive&) {});
                      }),
             "broken.pt");
}

// ---- DataParallel ----

// Gradients of all parameters and of the input, of one forward and backward.
template <typename Model>
std::vector<Tensor> gradients(Model& model, NetImpl& net, int64_t rows, bool with_spare) {
  net.zero_grad();
  Tensor x = input_of(0, 0, rows).requires_grad_();
  const Tensor scale = torch::arange(1, rows + 1, torch::kFloat32).unsqueeze(1);
  model.forward(x, scale, 0.5, with_spare).pow(2).mean().backward();
  std::vector<Tensor> all{x.grad()};
  for (const Tensor& of : net.parameters()) all.push_back(of.grad());
  return all;
}

TEST(DataParallel, GradientsAreThoseOfTheWholeBatch) {
  for (const int replicas : {1, 2, 3}) {
    Net net;
    seed_and_fill(*net);
    DataParallel parallel(net, replicas);
    for (const int64_t rows : {1, 2, 6, 7}) {
      for (const bool with_spare : {false, true}) {
        const auto whole = gradients(*net, *net, rows, with_spare);
        const auto cut = gradients(parallel, *net, rows, with_spare);
        for (size_t i = 0; i < whole.size(); i++) {
          ASSERT_EQ(whole[i].defined(), cut[i].defined()) << i;
          if (!whole[i].defined()) continue;
          EXPECT_TRUE(torch::allclose(whole[i], cut[i], 1e-4, 1e-5))
              << replicas << " replicas, " << rows << " rows, gradient " << i;
        }
      }
    }
  }
}

TEST(DataParallel, FollowsTheOptimizerAndTheModesOfTheModule) {
  Net alone, net;
  seed_and_fill(*alone);
  seed_and_fill(*net);
  DataParallel parallel(net, 2);
  for (Net* of : {&alone, &net}) (*of)->first->bias.set_requires_grad(false);
  net->norm->eval();
  torch::optim::SGD alone_optimizer(alone->parameters(), 0.1), optimizer(net->parameters(), 0.1);
  for (int step = 0; step < 5; step++) {
    const Tensor x = input_of(0, step, 6);
    alone_optimizer.zero_grad();
    alone->forward(x).pow(2).mean().backward();
    alone_optimizer.step();
    optimizer.zero_grad();
    parallel.forward(x).pow(2).mean().backward();
    optimizer.step();
  }
  EXPECT_FALSE(net->first->bias.grad().defined());
  for (size_t i = 0; i < net->parameters().size(); i++) {
    EXPECT_TRUE(torch::allclose(alone->parameters()[i], net->parameters()[i], 1e-5, 1e-6)) << i;
  }
}

TEST(DataParallel, AReplicasExceptionArrivesAndTheNextForwardWorks) {
  struct MoodyImpl : torch::nn::Cloneable<MoodyImpl> {
    MoodyImpl() { MoodyImpl::reset(); }
    void reset() override { inner = register_module("inner", torch::nn::Linear(kWidth, 2)); }
    Tensor forward(const Tensor& x) {
      TORCH_CHECK(!x.gt(1000).any().item<bool>(), "too large");
      return inner(Fuse::apply(x.clone().requires_grad_()));
    }
    torch::nn::Linear inner = nullptr;
  };
  const auto moody = std::make_shared<MoodyImpl>();
  DataParallel parallel(moody, 2);
  Tensor x = input_of(0);
  x[3][0] = 2000;  // in the second replica's chunk
  EXPECT_THROW((void)parallel.forward(x), c10::Error);
  fails_in_backward = true;
  EXPECT_THROW(parallel.forward(input_of(0).requires_grad_()).sum().backward(), c10::Error);
  fails_in_backward = false;
  const Tensor loss = parallel.forward(input_of(0).requires_grad_()).sum();
  loss.backward({}, true);
  const Tensor once = moody->inner->weight.grad().clone();
  loss.backward();
  EXPECT_TRUE(torch::allclose(moody->inner->weight.grad(), 2 * once));
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(DataParallel, WithoutGradModeThereIsNoGraph) {
  Net net;
  DataParallel parallel(net, 2);
  const torch::NoGradGuard no_grad;
  const Tensor x = input_of(0, 0, 5);
  const Tensor y = parallel.forward(x);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(torch::allclose(y, net->forward(x), 1e-5, 1e-6));
}

TEST(DataParallel, InputsOfDifferentLengthsAreRefused) {
  Net net;
  DataParallel parallel(net, 2);
  EXPECT_THROW((void)parallel.forward(torch::zeros({4, kWidth}), torch::zeros({1, 1}), 1.0, false),
               c10::Error);
}

}  // namespace
