// One parameter as the reducer keeps it.
#pragma once

#include <string>
#include <vector>

#include "ddp/types.h"

namespace unisono::ddp {

struct Parameter {
  std::string name;  // May be empty.
  uniDataType_t type = uniFloat32;
  std::vector<size_t> shape;
  size_t count = 1;      // Of elements.
  void* grad = nullptr;  // The caller's; not used with bucket_views.

  size_t bytes() const { return count * element_bytes(type); }
};

}  // namespace unisono::ddp
