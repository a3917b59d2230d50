// The C shell of the reducer: checks arguments, every error names one, and calls the class.
#include <algorithm>
#include <cstring>

#include "ddp/reducer/messages.h"
#include "ddp/reducer/reducer.h"

struct uniReducer {
  std::unique_ptr<unisono::ddp::Reducer> reducer;
};

namespace unisono::ddp {
namespace {

constexpr int kMostDims = 16;

Status need(const void* pointer, const char* name) {
  return pointer == nullptr ? error(uniInvalidArgument, "{}: is null", name) : Status();
}

Status need(uniReducer_t reducer, int parameter) {
  DDP_TRY(need(reducer, "reducer"));
  const int count = reducer->reducer->count();
  if (parameter >= 0 && parameter < count) return {};
  return error(uniInvalidArgument, "parameter: {} is not between 0 and {}", parameter, count - 1);
}

// The whole, for messages: "parameters[3] (layer1.weight)".
std::string label(const uniParameter_t& from, int index) {
  const std::string name = from.name == nullptr ? "" : from.name;
  return name.empty() ? fmt::format("parameters[{}]", index)
                      : fmt::format("parameters[{}] ({})", index, name);
}

Status read_parameter(const uniParameter_t& from, int index, bool bucket_views, Parameter* to) {
  const int type = raw_type(&from.type);
  if (!is_gradient_type(type)) {
    return error(uniInvalidArgument, "{}.type: {} is not float16, bfloat16, float32 or float64",
                 label(from, index), type);
  }
  if (from.dims < 0 || from.dims > kMostDims) {
    return error(uniInvalidArgument, "{}.dims: {} is not between 0 and {}", label(from, index),
                 from.dims, kMostDims);
  }
  if (from.dims > 0 && from.shape == nullptr) {
    return error(uniInvalidArgument, "{}.shape: is null", label(from, index));
  }
  to->name = from.name == nullptr ? "" : from.name;
  to->type = from.type;
  to->grad = from.grad;
  size_t bytes = element_bytes(from.type);
  bool overflow = false;
  for (int i = 0; i < from.dims; i++) {
    to->shape.push_back(from.shape[i]);
    overflow = overflow || __builtin_mul_overflow(bytes, from.shape[i], &bytes);
  }
  // Any zero makes the product zero, wherever it overflowed.
  if (std::count(to->shape.begin(), to->shape.end(), size_t{0}) > 0) {
    overflow = false;
    bytes = 0;
  }
  if (overflow || bytes > PTRDIFF_MAX) {
    return error(uniInvalidArgument, "{}.shape: {} is too large", label(from, index),
                 shape_text(to->type, to->shape));
  }
  to->count = bytes / element_bytes(from.type);
  if (to->grad == nullptr && to->count > 0 && !bucket_views) {
    return error(uniInvalidArgument, "{}.grad: is null, without config.bucket_views",
                 label(from, index));
  }
  return {};
}

Status read_parameters(const uniParameter_t* parameters, int count, bool bucket_views,
                       std::vector<Parameter>* to) {
  if (count < 1) {
    return error(uniInvalidArgument, "count: {} parameters: there is nothing to reduce", count);
  }
  DDP_TRY(need(parameters, "parameters"));
  to->resize(static_cast<size_t>(count));
  size_t bytes = 0;
  for (int i = 0; i < count; i++) {
    Parameter& parameter = (*to)[static_cast<size_t>(i)];
    DDP_TRY(read_parameter(parameters[i], i, bucket_views, &parameter));
    if (__builtin_add_overflow(bytes, parameter.bytes(), &bytes) || bytes > PTRDIFF_MAX) {
      return error(uniInvalidArgument, "parameters: they have too many bytes together");
    }
  }
  return {};
}

Status create(uniReducer_t* reducer, uniComm_t comm, const uniParameter_t* parameters, int count,
              const uniReducerConfig_t* config) {
  DDP_TRY(need(reducer, "reducer"));
  *reducer = nullptr;
  DDP_TRY(need(comm, "comm"));
  Settings settings;
  DDP_TRY(read_config(config, &settings));
  std::vector<Parameter> read;
  DDP_TRY(read_parameters(parameters, count, settings.bucket_views, &read));
  std::unique_ptr<Reducer> made;
  DDP_TRY(Reducer::create(comm, std::move(read), settings, &made));
  *reducer = new uniReducer{std::move(made)};
  return {};
}

Status set_gradient(uniReducer_t reducer, int parameter, void* grad) {
  DDP_TRY(need(reducer, parameter));
  if (grad == nullptr && !reducer->reducer->is_empty(parameter)) DDP_TRY(need(grad, "grad"));
  return reducer->reducer->set_gradient(parameter, grad);
}

Status begin_backward(uniReducer_t reducer, int sync) {
  DDP_TRY(need(reducer, "reducer"));
  if (sync != 0 && sync != 1) {
    return error(uniInvalidArgument, "sync: {} is neither 0 nor 1", sync);
  }
  return reducer->reducer->begin_backward(sync == 1);
}

Status stats(uniReducer_t reducer, uniReducerStats_t* out) {
  DDP_TRY(need(reducer, "reducer"));
  DDP_TRY(need(out, "stats"));
  const size_t size = out->size;
  if (size < offsetof(uniReducerStats_t, forward_us)) {
    return error(uniInvalidArgument, "stats.size: {} is not set", size);
  }
  uniReducerStats_t full{};
  reducer->reducer->stats(&full);
  // An older caller's struct is shorter.
  std::memcpy(out, &full, std::min(size, sizeof full));
  out->size = size;
  return {};
}

}  // namespace
}  // namespace unisono::ddp

using unisono::ddp::Mark;
using unisono::ddp::need;
using unisono::ddp::report;
using unisono::ddp::Status;

uniResult_t uniReducerCreate(uniReducer_t* reducer, uniComm_t comm,
                             const uniParameter_t* parameters, int count,
                             const uniReducerConfig_t* config) {
  return report(unisono::ddp::create(reducer, comm, parameters, count, config));
}

uniResult_t uniReducerDestroy(uniReducer_t reducer) {
  delete reducer;
  return uniSuccess;
}

uniResult_t uniReducerGradient(uniReducer_t reducer, int parameter, void** grad) {
  Status status = need(reducer, parameter);
  if (status.ok()) status = need(grad, "grad");
  if (status.ok()) status = reducer->reducer->gradient(parameter, grad);
  return report(status);
}

uniResult_t uniReducerSetGradient(uniReducer_t reducer, int parameter, void* grad) {
  return report(unisono::ddp::set_gradient(reducer, parameter, grad));
}

uniResult_t uniReducerBeginForward(uniReducer_t reducer) {
  const Status status = need(reducer, "reducer");
  return report(status.ok() ? reducer->reducer->begin_forward() : status);
}

uniResult_t uniReducerBeginBackward(uniReducer_t reducer, int sync) {
  return report(unisono::ddp::begin_backward(reducer, sync));
}

uniResult_t uniReducerMarkReady(uniReducer_t reducer, int parameter) {
  const Status status = need(reducer, parameter);
  return report(status.ok() ? reducer->reducer->mark(parameter, Mark::kReady) : status);
}

uniResult_t uniReducerMarkUnused(uniReducer_t reducer, int parameter) {
  const Status status = need(reducer, parameter);
  return report(status.ok() ? reducer->reducer->mark(parameter, Mark::kUnused) : status);
}

uniResult_t uniReducerFinish(uniReducer_t reducer) {
  const Status status = need(reducer, "reducer");
  return report(status.ok() ? reducer->reducer->finish() : status);
}

uniResult_t uniReducerUsed(uniReducer_t reducer, int parameter, int* used) {
  Status status = need(reducer, parameter);
  if (status.ok()) status = need(used, "used");
  if (status.ok()) status = reducer->reducer->used(parameter, used);
  return report(status);
}

uniResult_t uniReducerSetHook(uniReducer_t reducer, uniBucketHook_t hook, void* arg) {
  const Status status = need(reducer, "reducer");
  return report(status.ok() ? reducer->reducer->set_hook(hook, arg) : status);
}

uniResult_t uniReducerStats(uniReducer_t reducer, uniReducerStats_t* stats) {
  return report(unisono::ddp::stats(reducer, stats));
}

uniResult_t uniReducerBucketSize(uniReducer_t reducer, int bucket, size_t* bytes, int* parameters) {
  Status status = need(reducer, "reducer");
  if (status.ok()) status = need(bytes, "bytes");
  if (status.ok()) status = need(parameters, "parameters");
  if (status.ok()) status = reducer->reducer->bucket_size(bucket, bytes, parameters);
  return report(status);
}

uniResult_t uniReducerReadyOrder(uniReducer_t reducer, int* order) {
  Status status = need(reducer, "reducer");
  if (status.ok()) status = need(order, "order");
  return report(status.ok() ? reducer->reducer->ready_order(order) : status);
}
