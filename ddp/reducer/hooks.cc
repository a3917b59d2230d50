// The built-in communication hooks. Everything they do is work on the bucket's stream, within the
// bucket's memory.
#include <memory>

#include "ddp/reducer/averaging.h"
#include "ddp/status.h"
#include "ddp/types.h"
#include "unisono/ddp.h"

namespace unisono::ddp {
namespace {

// What a step on the stream needs of a bucket, which is gone by then.
struct Step {
  void* data;
  size_t count;
  uniDataType_t type, narrow_type;
  int ranks;
};

// Runs fn on the stream, also after an error; fn owns its step.
uniResult_t put(uniStream_t stream, uniHostFn_t fn, Step step) {
  auto owned = std::make_unique<Step>(step);
  const uniResult_t result = uniStreamLaunchHostFunc(stream, fn, owned.get());
  if (result == uniSuccess) (void)owned.release();
  return result;
}

void run_scale(void* arg, uniResult_t) {
  const std::unique_ptr<Step> step(static_cast<Step*>(arg));
  scale(step->data, step->data, step->count, step->type, 1.0 / step->ranks);
}

void run_narrow(void* arg, uniResult_t) {
  const std::unique_ptr<Step> step(static_cast<Step*>(arg));
  narrow(step->data, step->count, step->type, step->narrow_type, step->ranks);
}

void run_widen(void* arg, uniResult_t) {
  const std::unique_ptr<Step> step(static_cast<Step*>(arg));
  widen(step->data, step->count, step->type, step->narrow_type);
}

uniResult_t check(const uniBucket_t* bucket, int* ranks) {
  if (bucket == nullptr) return report(error(uniInvalidArgument, "bucket: is null"));
  return uniCommCount(bucket->comm, ranks);
}

// What the reducer does by itself.
uniResult_t average(const uniBucket_t& bucket, int ranks) {
  if (!is_divided_before_sum(bucket.type)) {
    return uniAllReduce(bucket.data, bucket.data, bucket.count, bucket.type, uniAvg, bucket.comm,
                        bucket.stream);
  }
  const Step step{bucket.data, bucket.count, bucket.type, bucket.type, ranks};
  const uniResult_t result = ranks == 1 ? uniSuccess : put(bucket.stream, &run_scale, step);
  if (result != uniSuccess) return result;
  return uniAllReduce(bucket.data, bucket.data, bucket.count, bucket.type, uniSum, bucket.comm,
                      bucket.stream);
}

uniResult_t compress(uniBucket_t* bucket, uniDataType_t narrow_type) {
  int ranks = 1;
  uniResult_t result = check(bucket, &ranks);
  if (result != uniSuccess) return result;
  if (element_bytes(bucket->type) == 2) return average(*bucket, ranks);
  const Step step{bucket->data, bucket->count, bucket->type, narrow_type, ranks};
  result = put(bucket->stream, &run_narrow, step);
  if (result != uniSuccess) return result;
  bucket->wire_bytes = bucket->count * element_bytes(narrow_type);
  result = uniAllReduce(bucket->data, bucket->data, bucket->count, narrow_type, uniSum,
                        bucket->comm, bucket->stream);
  return result == uniSuccess ? put(bucket->stream, &run_widen, step) : result;
}

}  // namespace
}  // namespace unisono::ddp

uniResult_t uniHookAllReduce(void*, uniBucket_t* bucket) {
  int ranks = 1;
  const uniResult_t result = unisono::ddp::check(bucket, &ranks);
  return result == uniSuccess ? unisono::ddp::average(*bucket, ranks) : result;
}

uniResult_t uniHookFloat16Compress(void*, uniBucket_t* bucket) {
  return unisono::ddp::compress(bucket, uniFloat16);
}

uniResult_t uniHookBfloat16Compress(void*, uniBucket_t* bucket) {
  return unisono::ddp::compress(bucket, uniBfloat16);
}
