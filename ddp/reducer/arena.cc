#include "ddp/reducer/arena.h"

#include <algorithm>

namespace unisono::ddp {

Status Arena::create(uniComm_t comm, size_t bytes, std::unique_ptr<Arena>* arena) {
  std::unique_ptr<Arena> made(new Arena(comm));
  const size_t at_least_one = std::max<size_t>(bytes, 1);
  DDP_TRY(called(uniMemAlloc(&made->memory_, at_least_one)));
  DDP_TRY(called(uniCommRegister(comm, made->memory_, at_least_one, &made->registration_)));
  *arena = std::move(made);
  return {};
}

Arena::~Arena() {
  if (registration_ != nullptr) (void)uniCommDeregister(comm_, registration_);
  (void)uniMemFree(memory_);
}

}  // namespace unisono::ddp
