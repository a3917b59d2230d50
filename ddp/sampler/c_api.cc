// The C shell of the sampler: checks arguments, names the wrong one, and calls Sampler.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "ddp/sampler/sampler.h"
#include "ddp/status.h"
#include "unisono/ddp.h"

using unisono::ddp::error;
using unisono::ddp::report;
using unisono::ddp::Sampler;
using unisono::ddp::Status;

struct uniSampler {
  std::unique_ptr<Sampler> sampler;
};

namespace {

Status need(const void* pointer, const char* argument) {
  return pointer == nullptr ? error(uniInvalidArgument, "{}: is null", argument) : Status();
}

// A caller compiled against an older, shorter struct: missing fields keep their defaults.
Status read_config(const uniSamplerConfig_t* given, uniSamplerConfig_t* config) {
  size_t size = 0;
  std::memcpy(&size, &given->size, sizeof size);
  constexpr size_t kLeast = offsetof(uniSamplerConfig_t, seed) + sizeof(uint64_t);
  if (size < kLeast || given->magic != UNI_SAMPLER_CONFIG_MAGIC) {
    return error(uniInvalidArgument, "config: was not made from UNI_SAMPLER_CONFIG_INITIALIZER");
  }
  std::memcpy(config, given, std::min(size, sizeof *config));
  const std::pair<const char*, int> switches[] = {{"shuffle", config->shuffle},
                                                  {"drop_last", config->drop_last},
                                                  {"evaluation", config->evaluation}};
  for (const auto& [name, value] : switches) {
    if (value != 0 && value != 1) {
      return error(uniInvalidArgument, "config.{}: {} is neither 0 nor 1", name, value);
    }
  }
  return {};
}

Status create(uniSampler_t* sampler, uint64_t samples, int ranks, int rank,
              const uniSamplerConfig_t* given) {
  DDP_TRY(need(sampler, "sampler"));
  *sampler = nullptr;
  uniSamplerConfig_t config = UNI_SAMPLER_CONFIG_INITIALIZER;
  if (given != nullptr) DDP_TRY(read_config(given, &config));
  if (ranks < 1) return error(uniInvalidArgument, "ranks: {} is not positive", ranks);
  if (rank < 0 || rank >= ranks) {
    return error(uniInvalidArgument, "rank: {} is no rank of {}", rank, ranks);
  }
  const bool shuffled = config.shuffle == 1 && config.evaluation == 0;
  if (shuffled && samples > std::numeric_limits<uint32_t>::max()) {
    return error(uniInvalidArgument, "samples: {} is more than 2^32 - 1, the most with shuffle",
                 samples);
  }
  Sampler::Shape shape;
  shape.samples = samples;
  shape.ranks = static_cast<uint64_t>(ranks);
  shape.rank = static_cast<uint64_t>(rank);
  shape.seed = config.seed;
  shape.shuffle = config.shuffle == 1;
  shape.drop_last = config.drop_last == 1;
  shape.evaluation = config.evaluation == 1;
  std::unique_ptr<uniSampler> made(new (std::nothrow) uniSampler{Sampler::create(shape)});
  if (made == nullptr || made->sampler == nullptr) {
    return error(uniSystemError, "no memory for the order of {} samples", samples);
  }
  *sampler = made.release();
  return {};
}

Status next(uniSampler_t sampler, uint64_t* indices, uint64_t capacity, uint64_t* count) {
  DDP_TRY(need(sampler, "sampler"));
  if (capacity > 0) DDP_TRY(need(indices, "indices"));
  DDP_TRY(need(count, "count"));
  *count = sampler->sampler->next(indices, capacity);
  return {};
}

Status position_of(uniSampler_t sampler, uint64_t* epoch, uint64_t* position) {
  DDP_TRY(need(sampler, "sampler"));
  DDP_TRY(need(epoch, "epoch"));
  DDP_TRY(need(position, "position"));
  *epoch = sampler->sampler->epoch();
  *position = sampler->sampler->position();
  return {};
}

Status resume(uniSampler_t sampler, uint64_t epoch, uint64_t position) {
  DDP_TRY(need(sampler, "sampler"));
  if (position > sampler->sampler->count()) {
    return error(uniInvalidArgument, "position: {} is past the {} samples of this rank's epoch",
                 position, sampler->sampler->count());
  }
  sampler->sampler->move_to(epoch, position);
  return {};
}

}  // namespace

uniResult_t uniSamplerCreate(uniSampler_t* sampler, uint64_t samples, int ranks, int rank,
                             const uniSamplerConfig_t* config) {
  return report(create(sampler, samples, ranks, rank, config));
}

uniResult_t uniSamplerDestroy(uniSampler_t sampler) {
  delete sampler;
  return uniSuccess;
}

uniResult_t uniSamplerCount(uniSampler_t sampler, uint64_t* count) {
  if (const Status given = need(sampler, "sampler"); !given.ok()) return report(given);
  if (const Status given = need(count, "count"); !given.ok()) return report(given);
  *count = sampler->sampler->count();
  return uniSuccess;
}

uniResult_t uniSamplerSetEpoch(uniSampler_t sampler, uint64_t epoch) {
  return report(resume(sampler, epoch, 0));
}

uniResult_t uniSamplerNext(uniSampler_t sampler, uint64_t* indices, uint64_t capacity,
                           uint64_t* count) {
  return report(next(sampler, indices, capacity, count));
}

uniResult_t uniSamplerPosition(uniSampler_t sampler, uint64_t* epoch, uint64_t* position) {
  return report(position_of(sampler, epoch, position));
}

uniResult_t uniSamplerResume(uniSampler_t sampler, uint64_t epoch, uint64_t position) {
  return report(resume(sampler, epoch, position));
}
