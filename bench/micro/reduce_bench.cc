// Time and bytes per second of the reduction kernels: `build/bin/reduce_bench
// --benchmark_filter=float32`. Arguments: operands, bytes of one operand. Bytes counted: all that
// is read and written.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "comm/reduce/kernels.h"

namespace unisono {
namespace {

struct FreeDeleter {
  void operator()(void* pointer) const { std::free(pointer); }
};
using Buffer = std::unique_ptr<uint8_t, FreeDeleter>;

// Bytes that make ordinary numbers of every float type: subnormals would slow the arithmetic down.
Buffer make_buffer(size_t bytes) {
  const size_t page = 4096;
  Buffer buffer(static_cast<uint8_t*>(std::aligned_alloc(page, (bytes + page) / page * page)));
  for (size_t i = 0; i < bytes; i++) buffer.get()[i] = static_cast<uint8_t>(0x3c + i % 4);
  return buffer;
}

void run(benchmark::State& state, const char* target, DataType type, RedOp op, bool stream) {
  if (!set_kernel_target(target)) {
    state.SkipWithError("not available here");
    return;
  }
  const size_t bytes = static_cast<size_t>(state.range(1));
  std::vector<Buffer> inputs;
  std::vector<const void*> in;
  for (int64_t k = 0; k < state.range(0); k++) {
    inputs.push_back(make_buffer(bytes));
    in.push_back(inputs.back().get());
  }
  const Buffer out = make_buffer(bytes);
  ReduceArgs args;
  args.out = out.get();
  args.in = in.data();
  args.operands = static_cast<int>(in.size());
  args.count = bytes / type_bytes(type);
  args.stream = stream;
  const ReduceFn kernel = reduce_kernel(type, op);
  for (auto _ : state) {
    kernel(args);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes * (in.size() + 1)));
}

void add(const char* target, DataType type, RedOp op, bool stream) {
  std::string name = std::string(type_name(type)) + "/" + op_name(op) + "/" + target;
  if (stream) name += "/stream";
  auto* bench = benchmark::RegisterBenchmark(
      name.c_str(), [=](benchmark::State& state) { run(state, target, type, op, stream); });
  bench->ArgNames({"operands", "bytes"});
  for (const int64_t operands : {2, 4, 8}) {
    for (const int64_t bytes : {8, 1 << 10, 16 << 10, 256 << 10, 16 << 20}) {
      const bool large = bytes >= 1 << 20;
      if (stream ? large : true) bench->Args({operands, bytes});
    }
  }
}

}  // namespace
}  // namespace unisono

int main(int argc, char** argv) {
  using unisono::DataType;
  using unisono::RedOp;
  for (const char* target : unisono::kernel_targets()) {
    for (int type = 0; type < unisono::kDataTypes; type++) {
      for (int op = 0; op < unisono::kRedOps; op++) {
        const auto data_type = static_cast<DataType>(type);
        const auto red_op = static_cast<RedOp>(op);
        if (unisono::op_allowed(red_op, data_type)) unisono::add(target, data_type, red_op, false);
      }
    }
    unisono::add(target, DataType::kFloat32, RedOp::kSum, true);
    unisono::add(target, DataType::kBfloat16, RedOp::kSum, true);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
