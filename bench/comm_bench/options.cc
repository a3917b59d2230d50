#include "bench/comm_bench/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <climits>
#include <cstdlib>

namespace bench {
namespace {

struct WorkRow {
  Work work;
  const char* name;
};
constexpr WorkRow kWorks[] = {
    {Work::kAllReduce, "all_reduce"},
    {Work::kAllGather, "all_gather"},
    {Work::kReduce, "reduce"},
    {Work::kBroadcast, "broadcast"},
    {Work::kReduceScatter, "reduce_scatter"},
    {Work::kGather, "gather"},
    {Work::kScatter, "scatter"},
    {Work::kAllToAll, "all_to_all"},
    {Work::kSendRecv, "sendrecv"},
    {Work::kBarrier, "barrier"},
    {Work::kPingPong, "pingpong"},
};

constexpr double kMostBytes = 0x1p62;  // sums of two sizes are sizes

// "64M" in binary units, as nccl-tests reads it.
size_t parse_size(const std::string& text, const char* flag) {
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    throw CLI::ValidationError(flag, "'" + text + "' is not a size");
  }
  const std::string unit = text.substr(used);
  size_t scale = 0;
  if (unit.empty()) scale = 1;
  if (unit == "K" || unit == "k") scale = size_t{1} << 10;
  if (unit == "M" || unit == "m") scale = size_t{1} << 20;
  if (unit == "G" || unit == "g") scale = size_t{1} << 30;
  // NaN is neither over nor under anything.
  if (scale == 0 || !(value >= 0)) throw CLI::ValidationError(flag, "'" + text + "' is not a size");
  const double bytes = value * static_cast<double>(scale);
  if (bytes >= kMostBytes) throw CLI::ValidationError(flag, "'" + text + "' is too large a size");
  return static_cast<size_t>(bytes);
}

template <class Row>
std::vector<Row> pick(const std::vector<Row>& rows, const std::string& word, const char* flag) {
  if (word == "all") return rows;
  for (const Row& row : rows) {
    if (word == row.name) return {row};
    if constexpr (requires { row.alias; }) {
      if (word == row.alias) return {row};
    }
  }
  std::string names = "all";
  for (const Row& row : rows) names += std::string(", ") + row.name;
  throw CLI::ValidationError(flag, "'" + word + "' is unknown (there are: " + names + ")");
}

struct Words {
  std::string begin, end, step = "1M", op = "sum", type = "float", buffers = "private",
                          cache = "hot";
};

void add_nccl_flags(CLI::App& app, Options& o, Words& words) {
  app.add_option("-b,--minbytes", words.begin,
                 "first size (K, M, G are binary; default 32M; pingpong: latency's, 8)");
  app.add_option("-e,--maxbytes", words.end,
                 "last size (default: the first; pingpong: bandwidth's, 4M)");
  app.add_option("-i,--stepbytes", words.step, "step between sizes (default 1M)");
  app.add_option("-f,--stepfactor", o.factor, "factor between sizes; over 1 it replaces the step")
      ->check(CLI::Range(0, INT_MAX));  // a negative one would wrap
  app.add_option("-n,--iters", o.iterations, "timed calls a batch (20)")
      ->check(CLI::Range(1, INT_MAX));
  app.add_option("-w,--warmup_iters", o.warmup, "calls before timing (5)")
      ->check(CLI::Range(0, INT_MAX));
  app.add_option("-o,--op", words.op, "sum prod min max avg band bor bxor, or all (sum)");
  app.add_option("-d,--datatype", words.type,
                 "float half bfloat16 double int8 ..., or all (float)");
  app.add_option("-r,--root", o.root, "root rank; -1: every rank in turn (0)")
      ->check(CLI::Range(-1, INT_MAX).description(""));
  app.add_option("-c,--check", o.check, "check results: 0 or 1 (1)")->check(CLI::Range(0, 1));
  app.add_option("-a,--average", o.average,
                 "time over ranks: 0 rank 0, 1 average, 2 min, 3 max (1)")
      ->check(CLI::Range(0, 3));
  app.add_option_function<int>(
         "-z,--blocking", [&o](int on) { o.barrier_each = on != 0; },
         "1: a barrier after each call, within the timing (0)")
      ->check(CLI::Range(0, 1));
  app.add_option("-J,--json", o.json_file, "also write the results to this file");
  app.add_flag("-I,--per_iteration", o.per_iteration, "show min, max, p99 and cv of single calls");
  app.add_option("-T,--timeout", o.timeout_s,
                 "seconds for each operation (0: the library's default)")
      ->check(CLI::Range(0, INT_MAX));
}

void add_own_flags(CLI::App& app, Options& o, Words& words) {
  app.add_option("--batches", o.batches, "timed batches; their median is shown (5)")
      ->check(CLI::Range(1, INT_MAX));
  app.add_option("--ranks", o.ranks, "start this many pinned local processes")
      ->check(CLI::Range(1, 1024));
  app.add_option("--transport", o.transport, "shm, tcp, or a list");
  app.add_option("--algorithm", o.algorithm, "force one: ring, direct, ...");
  app.add_flag("--race", o.race,
               "every algorithm in turn, batch by batch, beside the planner's choice");
  app.add_option("--buffers", words.buffers, "private or registered (private)")
      ->check(CLI::IsMember({"private", "registered"}));
  app.add_option("--cache", words.cache,
                 "hot, rewrite (inputs rewritten before each call) or cold (hot)")
      ->check(CLI::IsMember({"hot", "rewrite", "cold"}));
  app.add_flag("--reproducible", o.reproducible, "ask for bits that depend on nothing but inputs");
  app.add_flag("--stream", o.use_stream, "issue on a host stream instead of blocking calls");
  app.add_option("--report", o.report_file, "also write the results as a page with plots");
  app.add_option("--compare", o.compare,
                 "two files of -J: which rows differ, by a rank test of their batches; measures "
                 "nothing. Exit status 0: no row differs, 1: some do, 2: a file cannot be compared")
      ->expected(2)
      ->type_name("A.json B.json");
  app.add_option("--versus", o.versus,
                 "other libraries in the same processes, batch by batch: openmpi, openmpi-ucx, "
                 "openmpi-tcp, mpich, gloo, or a name given to bench/peers/setup; with --ranks");
  app.add_option("--versus-peer", o.versus_peer)->group("");
  app.add_option("--versus-folder", o.versus_folder)->group("");
  app.add_flag("--bound", o.bound, "measure this machine's own bounds beside each size");
}

}  // namespace

const std::vector<TypeRow>& type_rows() {
  static const std::vector<TypeRow> rows = {
      {uniInt8, "int8", "char", 1},         {uniUint8, "uint8", "uchar", 1},
      {uniInt32, "int32", "int", 4},        {uniUint32, "uint32", "uint", 4},
      {uniInt64, "int64", "long", 8},       {uniUint64, "uint64", "ulong", 8},
      {uniFloat16, "half", "float16", 2},   {uniFloat32, "float", "float32", 4},
      {uniFloat64, "double", "float64", 8}, {uniBfloat16, "bfloat16", "bf16", 2},
      {uniBool, "bool", "bool", 1},
  };
  return rows;
}

const std::vector<OpRow>& op_rows() {
  static const std::vector<OpRow> rows = {{uniSum, "sum"}, {uniProd, "prod"}, {uniMax, "max"},
                                          {uniMin, "min"}, {uniAvg, "avg"},   {uniBand, "band"},
                                          {uniBor, "bor"}, {uniBxor, "bxor"}};
  return rows;
}

bool has_op(Work work) {
  return work == Work::kAllReduce || work == Work::kReduce || work == Work::kReduceScatter;
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

bool has_root(Work work) {
  return work == Work::kReduce || work == Work::kBroadcast || work == Work::kGather ||
         work == Work::kScatter;
}

std::string root_problem(const Options& o, int ranks) {
  if (!has_root(o.work) || o.root < ranks) return "";
  return std::to_string(o.root) + " is no rank: they are 0 to " + std::to_string(ranks - 1);
}

namespace {

void set_sizes(Options& o, const Words& words) {
  const bool pairs = o.work_name == "pingpong";
  const char* const first = pairs ? "8" : "32M";
  o.begin_bytes = parse_size(words.begin.empty() ? first : words.begin, "-b");
  if (!words.end.empty()) {
    o.end_bytes = parse_size(words.end, "-e");
  } else {
    o.end_bytes = pairs ? std::max<size_t>(o.begin_bytes, 4u << 20) : o.begin_bytes;
  }
}

bool defined(const TypeRow& type, const OpRow& op) {
  const bool is_float = type.type == uniFloat16 || type.type == uniFloat32 ||
                        type.type == uniFloat64 || type.type == uniBfloat16;
  const bool bits = op.op == uniBand || op.op == uniBor || op.op == uniBxor;
  return !(bits && is_float) && !(op.op == uniAvg && type.type == uniBool);
}

std::vector<TypedOp> typed_ops(Work work, const Words& words) {
  const std::vector<TypeRow> types = pick(type_rows(), words.type, "-d");
  std::vector<OpRow> ops = pick(op_rows(), words.op, "-o");
  if (!has_op(work)) ops = {{uniSum, "none"}};
  std::vector<TypedOp> all;
  for (const TypeRow& type : types) {
    for (const OpRow& op : ops) {
      if (defined(type, op)) all.push_back({type, op});
    }
  }
  if (all.empty())
    throw CLI::ValidationError("-o", words.op + " is not defined for -d " + words.type);
  return all;
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options o;
  Words words;
  CLI::App app{
      "Times collectives over whatever connects the ranks. Columns and flags are nccl-tests'.",
      "comm-bench"};
  std::vector<std::string> names;
  for (const WorkRow& row : kWorks) names.emplace_back(row.name);
  app.add_option("collective", o.work_name,
                 "what to time; pingpong: latency and bandwidth between all pairs of ranks")
      ->check(CLI::IsMember(names));
  add_nccl_flags(app, o, words);
  add_own_flags(app, o, words);
  try {
    app.parse(argc, argv);
    if (o.work_name.empty() && o.compare.empty()) throw CLI::RequiredError("collective");
    for (const WorkRow& row : kWorks) {
      if (o.work_name == row.name) o.work = row.work;
    }
    set_sizes(o, words);
    if (o.ranks > 0 && !root_problem(o, o.ranks).empty())
      throw CLI::ValidationError("-r", root_problem(o, o.ranks));
    if (!o.versus.empty() && o.ranks < 1) throw CLI::ValidationError("--versus", "needs --ranks N");
    if (!o.versus.empty() && (o.work_name == "pingpong" || !o.report_file.empty()))
      throw CLI::ValidationError("--versus", "goes neither with pingpong nor with --report");
    if (o.race && (o.work_name == "pingpong" || o.work_name == "sendrecv" || !o.versus.empty() ||
                   !o.report_file.empty() || !o.algorithm.empty() || words.buffers != "private"))
      throw CLI::ValidationError("--race",
                                 "goes with private buffers, and neither with pingpong, "
                                 "sendrecv, --versus, --report nor --algorithm");
    o.step_bytes = parse_size(words.step, "-i");
    o.typed_ops = typed_ops(o.work, words);
    if (o.end_bytes < o.begin_bytes) throw CLI::ValidationError("-e", "is smaller than -b");
    if (o.factor <= 1 && o.step_bytes == 0) throw CLI::ValidationError("-i", "must be over 0");
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e) == 0 ? 0 : 2);
  }
  for (int i = 1; i < argc; i++) o.flags += std::string(i > 1 ? " " : "") + argv[i];
  o.registered = words.buffers == "registered";
  o.cache = words.cache == "cold"      ? Cache::kCold
            : words.cache == "rewrite" ? Cache::kRewrite
                                       : Cache::kHot;
  return o;
}

}  // namespace bench
