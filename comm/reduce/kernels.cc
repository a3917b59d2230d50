#include "comm/reduce/kernels.h"

#include <atomic>
#include <cstring>

#include "base/check.h"
#include "base/config.h"
#include "base/log.h"
#include "base/stream_copy.h"
#include "comm/reduce/table.h"
#include "hwy/targets.h"

namespace unisono {
namespace {

struct Target {
  const char* name;
  reduce::Table table;
};

// Worst first.
std::vector<Target> make_targets() {
  struct Named {
    int64_t target;
    const char* name;
  };
  constexpr Named kVectorTargets[] = {
      {HWY_NEON, "neon"}, {HWY_SSE4, "sse4"}, {HWY_AVX2, "avx2"}, {HWY_AVX3, "avx512"}};
  std::vector<Target> targets;
  targets.push_back({"scalar", {}});
  reduce::fill_scalar_kernels(targets.back().table);
  const int64_t usable = reduce::compiled_targets() & hwy::SupportedTargets();
  for (const Named& named : kVectorTargets) {
    if ((usable & named.target) == 0) continue;
    targets.push_back({named.name, {}});
    reduce::fill_float_kernels(named.target, targets.back().table);
    reduce::fill_half_kernels(named.target, targets.back().table);
    reduce::fill_int_kernels(named.target, targets.back().table);
  }
  return targets;
}

// Never freed: kernels may run while the process exits.
const std::vector<Target>& targets() {
  static const std::vector<Target>& made = *new std::vector<Target>(make_targets());
  return made;
}

const Target* find_target(std::string_view name) {
  for (const Target& target : targets()) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

std::atomic<const Target*> active_target{nullptr};

const Target* choose_target() {
  const Target* chosen = &targets().back();
  const std::string& wanted = environment().kernels;
  if (!wanted.empty()) {
    const Target* named = find_target(wanted);
    if (named == nullptr) {
      log_warn("UNISONO_KERNELS={} is not available here: using {}", wanted, chosen->name);
    } else {
      chosen = named;
    }
  }
  // Two first users choose alike; a choice already made by set_kernel_target stands.
  const Target* expected = nullptr;
  if (!active_target.compare_exchange_strong(expected, chosen, std::memory_order_acq_rel)) {
    return expected;
  }
  return chosen;
}

const Target& active() {
  const Target* target = active_target.load(std::memory_order_acquire);
  return target != nullptr ? *target : *choose_target();
}

}  // namespace

ReduceFn reduce_kernel(DataType type, RedOp op) {
  const ReduceFn function = active().table.rows[static_cast<size_t>(type)][static_cast<size_t>(op)];
  CHECK(function != nullptr);
  return function;
}

void copy_bytes(void* to, const void* from, size_t bytes, bool stream) {
  if (to == from || bytes == 0) return;
  if (stream) {
    stream_copy(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void reduce::copy_operand(const ReduceArgs& args, size_t bytes) {
  // In place, the operand is one of the two: it is only read.
  if (args.also != nullptr) copy_bytes(args.also, args.in[0], bytes, args.stream_also);
  if (args.out != nullptr) copy_bytes(args.out, args.in[0], bytes, args.stream);
}

std::vector<const char*> kernel_targets() {
  std::vector<const char*> names;
  for (const Target& target : targets()) names.push_back(target.name);
  return names;
}

const char* kernel_target() {
  return active().name;
}

bool set_kernel_target(std::string_view name) {
  const Target* target = find_target(name);
  if (target == nullptr) return false;
  active_target.store(target, std::memory_order_release);
  return true;
}

}  // namespace unisono
