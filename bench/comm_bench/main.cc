// comm-bench: time of collectives between real processes. It uses the public C API alone, as a
// framework would.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "bench/comm_bench/bounds.h"
#include "bench/comm_bench/launch.h"
#include "bench/comm_bench/measure.h"
#include "bench/comm_bench/options.h"
#include "bench/comm_bench/report.h"
#include "bench/comm_bench/work.h"

namespace bench {
namespace {

struct WireLine {
  int32_t rank, pid;
  char host[64], transport[64];
};

std::vector<RankLine> gather_lines(const Ranks& ranks) {
  WireLine mine{};
  mine.rank = ranks.rank;
  mine.pid = static_cast<int32_t>(getpid());
  utsname names{};
  if (uname(&names) == 0) snprintf(mine.host, sizeof mine.host, "%.63s", names.nodename);
  uniCommInfo_t info{};
  info.size = sizeof info;
  must(uniCommQuery(ranks.comm, &info), "uniCommQuery", ranks.comm);
  snprintf(mine.transport, sizeof mine.transport, "%.63s", info.transports);
  std::vector<WireLine> all(static_cast<size_t>(ranks.ranks));
  must(uniGather(&mine, all.data(), sizeof mine, uniUint8, 0, ranks.comm, nullptr), "uniGather",
       ranks.comm);
  std::vector<RankLine> lines;
  for (const WireLine& line : all)
    lines.push_back({line.rank, line.pid, line.host, line.transport});
  return lines;
}

std::vector<size_t> sizes_to_run(const Options& o) {
  if (o.work == Work::kBarrier) return {0};
  std::vector<size_t> sizes;
  for (size_t bytes = o.begin_bytes; bytes <= o.end_bytes;) {
    sizes.push_back(bytes);
    const size_t next = o.factor > 1 ? std::max<size_t>(bytes, 1) * o.factor : bytes + o.step_bytes;
    if (next <= bytes) break;
    bytes = next;
  }
  return sizes;
}

std::string last_algorithm(uniComm_t comm) {
  uniCommInfo_t info{};
  info.size = sizeof info;
  must(uniCommQuery(comm, &info), "uniCommQuery", comm);
  return info.last_algorithm;
}

class Run {
 public:
  Run(const Options& options, const Ranks& ranks, const Shared& shared)
      : options_(options),
        ranks_(ranks),
        shared_(shared),
        report_(options, ranks.ranks),
        buffers_(options, ranks.comm, ranks.rank, ranks.ranks,
                 std::max<size_t>(options.end_bytes, 4096)) {
    if (options.use_stream) must(uniStreamCreate(&stream_), "uniStreamCreate");
  }
  ~Run() { must(uniStreamDestroy(stream_), "uniStreamDestroy"); }
  Run(const Run&) = delete;

  int all() {
    const std::vector<RankLine> lines = gather_lines(ranks_);
    if (ranks_.rank == 0) report_.header(lines);
    const int first = options_.root < 0 ? 0 : options_.root;
    const int last = options_.root < 0 ? ranks_.ranks - 1 : options_.root;
    for (const TypeRow& type : options_.types) {
      for (const OpRow& op : options_.ops) {
        if (!defined(type, op)) continue;
        for (int root = first; root <= last; root++) {
          for (const size_t bytes : sizes_to_run(options_)) one(type, op, root, bytes);
          if (!has_root(options_.work)) break;
        }
      }
    }
    int ok = ranks_.rank != 0 || report_.footer() ? 1 : 0;
    return ranks_.combine(ok, 2) > 0.5 ? 0 : 1;
  }

 private:
  static bool defined(const TypeRow& type, const OpRow& op) {
    const bool is_float = type.type == uniFloat16 || type.type == uniFloat32 ||
                          type.type == uniFloat64 || type.type == uniBfloat16;
    const bool bits = op.op == uniBand || op.op == uniBor || op.op == uniBxor;
    return !(bits && is_float) && !(op.op == uniAvg && type.type == uniBool);
  }

  void one(const TypeRow& type, const OpRow& op, int root, size_t bytes) {
    Row row;
    row.c = {&type, op.op, root, sizes_of(options_.work, bytes, type.bytes, ranks_.ranks), false};
    row.op = op.name;
    row.has_in_place = options_.work != Work::kAllToAll && options_.work != Work::kSendRecv &&
                       options_.work != Work::kBarrier;
    if (ranks_.rank == 0)
      report_.progress(options_.work_name + " " + std::to_string(bytes) + " bytes ...");
    if (options_.bound) row.flag_before_us = flag_latency_us(shared_, ranks_);
    row.out_of_place = time_case(options_, ranks_, buffers_, row.c, stream_);
    if (row.has_in_place) {
      WorkBuffers::Case in_place = row.c;
      in_place.in_place = true;
      row.in_place = time_case(options_, ranks_, buffers_, in_place, stream_);
    }
    // What the row used: asked with a call of the row's own shape just before.
    buffers_.issue(row.c, nullptr);
    row.algorithm = options_.work == Work::kSendRecv ? "pair" : last_algorithm(ranks_.comm);
    if (options_.bound) {
      row.bound_us = bound_us(options_, shared_, ranks_, row.c.sizes, type.bytes);
      row.flag_after_us = flag_latency_us(shared_, ranks_);
    }
    if (ranks_.rank == 0) report_.row(row);
  }

  const Options& options_;
  Ranks ranks_;
  const Shared& shared_;
  Report report_;
  WorkBuffers buffers_;
  uniStream_t stream_ = nullptr;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::Options options = bench::parse_options(argc, argv);
  return bench::launch(options,
                       [&](uniComm_t comm, int rank, int ranks, const bench::Shared& shared) {
                         return bench::Run(options, {comm, rank, ranks}, shared).all();
                       });
}
