#include "ddp/examples/digits/exchange.h"

#include <type_traits>

#include "ddp/examples/digits/check.h"

namespace digits {
namespace {

template <class T>
constexpr uniDataType_t kTypeOf = std::is_same_v<T, double> ? uniFloat64 : uniFloat32;

template <class T>
using Parameters = std::vector<Parameter<T>>;

// Memory for the gradients, where the reducer does not have them.
template <class T>
std::vector<std::vector<T>> own_gradients(Parameters<T>* parameters) {
  std::vector<std::vector<T>> gradients;
  for (Parameter<T>& parameter : *parameters) {
    gradients.emplace_back(parameter.value.size());
    parameter.grad = gradients.back().data();
  }
  return gradients;
}

uniBucketHook_t hook_of(Hook hook) {
  switch (hook) {
    case Hook::kAllReduce:
      return &uniHookAllReduce;
    case Hook::kFloat16:
      return &uniHookFloat16Compress;
    case Hook::kBfloat16:
      return &uniHookBfloat16Compress;
    default:
      return nullptr;
  }
}

template <class T>
class DistributedDataParallel : public Exchange<T> {
 public:
  DistributedDataParallel(uniComm_t comm, Parameters<T>* parameters, const Options& options)
      : parameters_(parameters), bucket_views_(options.bucket_views) {
    if (!bucket_views_) gradients_ = own_gradients(parameters);
    std::vector<uniParameter_t> described;
    for (const Parameter<T>& p : *parameters) {
      described.push_back(
          {p.name.c_str(), p.grad, kTypeOf<T>, static_cast<int>(p.shape.size()), p.shape.data()});
    }
    uniReducerConfig_t config = UNI_REDUCER_CONFIG_INITIALIZER;
    config.bucket_bytes = size_t{1024} * static_cast<size_t>(options.bucket_kib);
    config.first_bucket_bytes = config.bucket_bytes;
    config.bucket_views = bucket_views_ ? 1 : 0;
    config.hook = hook_of(options.hook);
    must(uniReducerCreate(&reducer_, comm, described.data(), static_cast<int>(described.size()),
                          &config),
         "uniReducerCreate");
  }
  ~DistributedDataParallel() override { must(uniReducerDestroy(reducer_), "uniReducerDestroy"); }
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  void before_forward() override {
    must(uniReducerBeginForward(reducer_), "uniReducerBeginForward");
  }
  void before_backward() override {
    if (bucket_views_) find_gradients();
    must(uniReducerBeginBackward(reducer_, 1), "uniReducerBeginBackward");
  }
  void ready(int parameter) override {
    must(uniReducerMarkReady(reducer_, parameter), "uniReducerMarkReady");
  }
  void after_backward() override {
    must(uniReducerFinish(reducer_), "uniReducerFinish");
    if (bucket_views_) find_gradients();  // the first time they may have moved
  }
  bool updates() const override { return true; }
  // The average over ranks of the ranks' means is the mean: they have equally many images.
  double divisor(size_t own_images, size_t) const override {
    return static_cast<double>(own_images);
  }
  void print_summary() const override;

 private:
  void find_gradients() {
    for (size_t p = 0; p < parameters_->size(); p++) {
      void* grad = nullptr;
      must(uniReducerGradient(reducer_, static_cast<int>(p), &grad), "uniReducerGradient");
      (*parameters_)[p].grad = static_cast<T*>(grad);
    }
  }

  Parameters<T>* parameters_;
  bool bucket_views_;
  std::vector<std::vector<T>> gradients_;
  uniReducer_t reducer_ = nullptr;
};

template <class T>
void DistributedDataParallel<T>::print_summary() const {
  uniReducerStats_t stats{};
  stats.size = sizeof stats;
  must(uniReducerStats(reducer_, &stats), "uniReducerStats");
  say("reducer: {} parameters in {} buckets, rebuilt {}; bytes a step: gradients {}, wire {}; "
      "memory {}\n",
      stats.parameters, stats.buckets, stats.rebuilt, stats.gradient_bytes, stats.wire_bytes,
      stats.memory_bytes);
  say("last step: forward {:.3f} ms, backward {:.3f} ms, communication {:.3f} ms, of which "
      "{:.3f} ms behind backward, {:.3f} ms exposed\n",
      stats.forward_us / 1000, stats.backward_us / 1000, stats.communication_us / 1000,
      stats.overlap_us / 1000, stats.exposed_us / 1000);
}

template <class T>
class DataParallel : public Exchange<T> {
 public:
  DataParallel(uniComm_t comm, Parameters<T>* parameters)
      : comm_(comm), gradients_(own_gradients(parameters)) {
    for (Parameter<T>& parameter : *parameters) values_.push_back(&parameter.value);
    must(uniCommUserRank(comm, &rank_), "uniCommUserRank");
    must(uniCommCount(comm, &ranks_), "uniCommCount");
  }

  void before_forward() override { broadcast_from_first(comm_, values_); }
  void before_backward() override {}
  void ready(int) override {}
  void after_backward() override {
    for (std::vector<T>& grad : gradients_) {
      must(uniReduce(grad.data(), grad.data(), grad.size(), kTypeOf<T>, uniSum, 0, comm_, nullptr),
           "uniReduce");
    }
  }
  bool updates() const override { return rank_ == 0; }
  // The replicas' gradients are summed: each is that of the global mean.
  double divisor(size_t, size_t global_images) const override {
    return static_cast<double>(global_images);
  }
  void print_summary() const override {
    say("DataParallel: {} replicas; parameters broadcast and gradients summed each step\n", ranks_);
  }

 private:
  uniComm_t comm_;
  std::vector<std::vector<T>*> values_;
  std::vector<std::vector<T>> gradients_;
  int rank_ = 0, ranks_ = 1;
};

}  // namespace

template <class T>
std::unique_ptr<Exchange<T>> make_exchange(uniComm_t comm, Parameters<T>* parameters,
                                           const Options& options) {
  if (options.replicas > 0) return std::make_unique<DataParallel<T>>(comm, parameters);
  return std::make_unique<DistributedDataParallel<T>>(comm, parameters, options);
}

template <class T>
void broadcast_from_first(uniComm_t comm, const std::vector<std::vector<T>*>& tensors) {
  std::vector<void*> data;
  std::vector<size_t> counts;
  for (std::vector<T>* tensor : tensors) {
    data.push_back(tensor->data());
    counts.push_back(tensor->size());
  }
  const std::vector<uniDataType_t> types(tensors.size(), kTypeOf<T>);
  must(uniBroadcastCoalesced(comm, data.data(), counts.data(), types.data(),
                             static_cast<int>(tensors.size()), 0),
       "uniBroadcastCoalesced");
}

template std::unique_ptr<Exchange<float>> make_exchange(uniComm_t, Parameters<float>*,
                                                        const Options&);
template std::unique_ptr<Exchange<double>> make_exchange(uniComm_t, Parameters<double>*,
                                                         const Options&);
template void broadcast_from_first(uniComm_t, const std::vector<std::vector<float>*>&);
template void broadcast_from_first(uniComm_t, const std::vector<std::vector<double>*>&);

}  // namespace digits
