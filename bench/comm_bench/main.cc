// comm-bench: time of collectives between real processes. It uses the public C API alone, as a
// framework would.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "bench/comm_bench/bounds.h"
#include "bench/comm_bench/compare.h"
#include "bench/comm_bench/launch.h"
#include "bench/comm_bench/measure.h"
#include "bench/comm_bench/options.h"
#include "bench/comm_bench/ping_pong.h"
#include "bench/comm_bench/private_bound.h"
#include "bench/comm_bench/race.h"
#include "bench/comm_bench/report.h"
#include "bench/comm_bench/run_facts.h"
#include "bench/comm_bench/versus.h"
#include "bench/comm_bench/work.h"

namespace bench {
namespace {

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
    if (ranks_.rank == 0) report_.header(lines, run_facts(options_, ranks_, lines));
    const int first = options_.root < 0 ? 0 : options_.root;
    const int last = options_.root < 0 ? ranks_.ranks - 1 : options_.root;
    for (const auto& [type, op] : options_.typed_ops) {
      for (int root = first; root <= last; root++) {
        for (const size_t bytes : sizes_to_run(options_)) one(type, op, root, bytes);
        if (!has_root(options_.work)) break;
      }
    }
    int ok = ranks_.rank != 0 || report_.footer() ? 1 : 0;
    return ranks_.combine(ok, 2) > 0.5 ? 0 : 1;
  }

 private:
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
      for (const bool in_place : {false, true}) {
        if (options_.work != Work::kAllReduce || type.type != uniFloat32) break;
        row.private_bound_us[in_place ? 1 : 0] =
            private_bound_us(shared_, ranks_, row.c.sizes.count, in_place);
      }
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

// A rank's whole run; the exit status.
int run_rank(const Options& options, const Ranks& ranks, const Shared& shared) {
  // Under a launcher only now is it known how many there are; each rank finds the same.
  if (const std::string problem = root_problem(options, ranks.ranks); !problem.empty()) {
    if (ranks.rank == 0) fprintf(stderr, "comm-bench: -r: %s\n", problem.c_str());
    ranks.barrier();  // a launcher ends the others at the first status that is not 0
    return 2;
  }
  const int writable = ranks.rank != 0 || can_write_files(options) ? 1 : 0;
  if (ranks.combine(writable, 2) < 0.5) return 1;
  if (options.work == Work::kPingPong) return ping_pong(options, ranks);
  if (options.race) return race(options, ranks, shared);
  return Run(options, ranks, shared).all();
}

int run(const Options& options, int argc, char** argv) {
  if (!options.compare.empty()) return compare_files(options.compare[0], options.compare[1]);
  if (!options.versus_peer.empty()) return run_versus_rank(options);
  if (!options.versus.empty()) return run_versus(options, argc, argv);
  return launch(options, [&](uniComm_t comm, int rank, int ranks, const Shared& shared) {
    return run_rank(options, {comm, rank, ranks}, shared);
  });
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  return bench::flushed(bench::run(bench::parse_options(argc, argv), argc, argv));
}
