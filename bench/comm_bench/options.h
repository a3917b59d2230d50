// What the command line of comm-bench says. Flags, columns and footer are nccl-tests'.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "unisono/unisono.h"

namespace bench {

enum class Work {
  kAllReduce,
  kAllGather,
  kReduce,
  kBroadcast,
  kReduceScatter,
  kGather,
  kScatter,
  kAllToAll,
  kSendRecv,
  kBarrier,
  kPingPong
};
enum class Cache { kHot, kRewrite, kCold };

struct TypeRow {
  uniDataType_t type;
  const char* name;   // nccl-tests' word
  const char* alias;  // ours
  size_t bytes;
};
struct OpRow {
  uniRedOp_t op;
  const char* name;
};
struct TypedOp {
  TypeRow type;
  OpRow op;
};
const std::vector<TypeRow>& type_rows();
const std::vector<OpRow>& op_rows();

struct Options {
  Work work = Work::kAllReduce;
  std::string work_name;
  size_t begin_bytes = 32u << 20, end_bytes = 32u << 20;
  size_t step_bytes = 1u << 20, factor = 1;  // factor > 1 wins
  int iterations = 20, warmup = 5, batches = 5;
  std::vector<TypedOp> typed_ops;  // -d x -o, without what is not defined; never empty
  int root = 0;                    // -1: every rank in turn
  int check = 1;
  int average = 1;  // time over ranks: 0 rank 0, 1 average, 2 least, 3 most
  bool barrier_each = false, use_stream = false, per_iteration = false;
  std::string json_file, report_file;
  std::vector<std::string> compare;        // two files of -J; nothing is measured then
  std::string flags;                       // the command line's words
  std::string versus;                      // peers, comma-separated (versus.h)
  std::string versus_peer, versus_folder;  // in the ranks that --versus starts
  int timeout_s = 0;                       // 0: the library's default
  int ranks = 0;  // start this many local processes; 0: under a launcher, or alone
  std::string transport, algorithm;
  bool registered = false, reproducible = false, bound = false;
  bool race = false;  // every algorithm in turn
  Cache cache = Cache::kHot;
};

// Exits the process (help, or an error that names the flag).
Options parse_options(int argc, char** argv);
std::vector<size_t> sizes_to_run(const Options& options);
bool has_op(Work work);
bool has_root(Work work);
// "" or why -r cannot be with so many ranks.
std::string root_problem(const Options& options, int ranks);

}  // namespace bench
