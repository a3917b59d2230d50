#include "ddp/reducer/settings.h"

#include <algorithm>
#include <cstring>

namespace unisono::ddp {
namespace {

Status read_switch(const char* name, int value, bool* to) {
  if (value != 0 && value != 1) {
    return error(uniInvalidArgument, "config.{}: {} is neither 0 nor 1", name, value);
  }
  *to = value == 1;
  return {};
}

}  // namespace

Status read_config(const uniReducerConfig_t* config, Settings* settings) {
  uniReducerConfig_t full = UNI_REDUCER_CONFIG_INITIALIZER;
  if (config != nullptr) {
    if (config->magic != UNI_REDUCER_CONFIG_MAGIC) {
      return error(uniInvalidArgument, "config: start from UNI_REDUCER_CONFIG_INITIALIZER");
    }
    if (config->size < offsetof(uniReducerConfig_t, bucket_bytes)) {
      return error(uniInvalidArgument, "config.size: {} bytes are too few", config->size);
    }
    // An older caller's struct is shorter: the rest keeps its defaults.
    std::memcpy(&full, config, std::min(config->size, sizeof full));
  }
  DDP_TRY(read_switch("bucket_views", full.bucket_views, &settings->bucket_views));
  DDP_TRY(read_switch("find_unused", full.find_unused, &settings->find_unused));
  DDP_TRY(read_switch("static_graph", full.static_graph, &settings->static_graph));
  DDP_TRY(read_switch("keep_buckets", full.keep_buckets, &settings->keep_buckets));
  settings->bucket_bytes = full.bucket_bytes;
  settings->first_bucket_bytes = full.first_bucket_bytes;
  settings->hook = full.hook;
  settings->hook_arg = full.hook_arg;
  return {};
}

}  // namespace unisono::ddp
