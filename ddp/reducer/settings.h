// The reducer's configuration, checked.
#pragma once

#include "ddp/status.h"
#include "unisono/ddp.h"

namespace unisono::ddp {

struct Settings {
  size_t bucket_bytes = 0, first_bucket_bytes = 0;
  bool bucket_views = false, find_unused = false, static_graph = false, keep_buckets = false;
  uniBucketHook_t hook = nullptr;
  void* hook_arg = nullptr;

  // Unused parameters are allowed: always, or in the first iteration.
  bool may_be_unused() const { return find_unused || static_graph; }
  // Buckets follow the order of readiness after the first synchronised iteration.
  bool rebuilds() const { return !keep_buckets && (!find_unused || static_graph); }
};

// config NULL: the defaults. uniInvalidArgument names the member.
Status read_config(const uniReducerConfig_t* config, Settings* settings);

}  // namespace unisono::ddp
