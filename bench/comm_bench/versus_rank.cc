// One rank of a launch of --versus: alternating batches of our calls and the peer's.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/comm_bench/bounds.h"
#include "bench/comm_bench/launch.h"
#include "bench/comm_bench/measure.h"
#include "bench/comm_bench/peer_library.h"
#include "bench/comm_bench/private_bound.h"
#include "bench/comm_bench/versus.h"

namespace bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kBatchUs =
    4000;  // a batch is about so long: far over the clock, far under a time slice
constexpr int kMostCalls = 20000, kLeastCalls = 3;
constexpr int kTries = 4;           // of a size during which the cores' distance changed
constexpr double kFlagMoved = 1.5;  // before / after, either way
constexpr size_t kSharedBytes = size_t{1} << 30;

struct Side {
  double us = 0;
  size_t wrong = 0;
};
struct Result {
  Side ours, theirs;
  double ratio = 0;  // median over pairs of batches of theirs / ours
  bool supported = true;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Pages that all ranks of this launch share, for the flag latency and the bound. A file of the
// launch's folder.
Shared map_shared(const std::string& folder) {
  const int fd = open((folder + "/shared").c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return {};
  void* at = mmap(nullptr, kSharedBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return at == MAP_FAILED ? Shared{} : Shared{at, kSharedBytes};
}

class Versus {
 public:
  Versus(const Options& options, const Ranks& ranks, const PeerLibrary& peer, const Shared& shared)
      : options_(options),
        ranks_(ranks),
        peer_(peer),
        shared_(shared),
        buffers_(options, ranks.comm, ranks.rank, ranks.ranks,
                 std::max<size_t>(options.end_bytes, 4096)) {}

  Json all() {
    Json rows = Json::array();
    for (const auto& [type, op] : options_.typed_ops) {
      for (const size_t bytes : sizes_to_run(options_)) rows.push_back(row(type, op, bytes));
    }
    return rows;
  }

 private:
  Json row(const TypeRow& type, const OpRow& op, size_t bytes) {
    WorkBuffers::Case c{&type, op.op, std::max(options_.root, 0),
                        sizes_of(options_.work, bytes, type.bytes, ranks_.ranks), false};
    Json j;
    for (int attempt = 1;; attempt++) {
      const double before = flag_latency_us(shared_, ranks_);
      j = {{"size", c.sizes.bytes},
           {"count", c.sizes.elements},
           {"type", type.name},
           {"redop", op.name},
           {"root", has_root(options_.work) ? c.root : -1}};
      j["out_of_place"] = side_json(compare(c));
      if (options_.work != Work::kAllToAll && options_.work != Work::kBarrier) {
        WorkBuffers::Case in_place = c;
        in_place.in_place = true;
        j["in_place"] = side_json(compare(in_place));
      }
      if (options_.bound) {
        j["bound"] = {{"time", bound_us(options_, shared_, ranks_, c.sizes, type.bytes)}};
        if (options_.work == Work::kAllReduce && type.type == uniFloat32) {
          for (const bool in_place : {false, true}) {
            j["bound"][in_place ? "private_in_place" : "private_out_of_place"] =
                private_bound_us(shared_, ranks_, c.sizes.count, in_place);
          }
        }
      }
      const double after = flag_latency_us(shared_, ranks_);
      const bool moved = std::max(before, after) > kFlagMoved * std::min(before, after);
      j["flag"] = {{"before", before}, {"after", after}, {"moved", moved}, {"tries", attempt}};
      if (!moved || attempt == kTries) return j;
    }
  }

  static Json side_json(const Result& r) {
    if (!r.supported) return nullptr;
    return {{"time", r.theirs.us},
            {"ours", r.ours.us},
            {"ratio", r.ratio},
            {"nwrong", r.theirs.wrong},
            {"nwrong_ours", r.ours.wrong}};
  }

  bool issue(const WorkBuffers::Case& c, bool peer) {
    if (peer) return peer_.issue(options_, c, buffers_.next(c));
    buffers_.issue(c, nullptr);
    return true;
  }

  // Mean time of a call on the slowest rank.
  double batch(const WorkBuffers::Case& c, bool peer, int calls) {
    const bool rewrite = options_.cache == Cache::kRewrite;
    ranks_.barrier();
    double total = 0;
    const double start = now_us();
    for (int i = 0; i < calls; i++) {
      if (rewrite) {
        buffers_.rewrite_input(c);
        ranks_.barrier();
      }
      const double before = rewrite ? now_us() : 0;
      issue(c, peer);
      if (rewrite) total += now_us() - before;
    }
    if (!rewrite) total = now_us() - start;
    return ranks_.combine(total / calls, 3);
  }

  int calls_for(const WorkBuffers::Case& c) {
    const double slowest = std::max(batch(c, false, kLeastCalls), batch(c, true, kLeastCalls));
    return static_cast<int>(
        std::clamp(kBatchUs / std::max(slowest, 1e-3), double{kLeastCalls}, double{kMostCalls}));
  }

  Result compare(const WorkBuffers::Case& c) {
    Result result;
    buffers_.fill_inputs(c);
    result.supported = ranks_.combine(issue(c, true) ? 1 : 0, 2) > 0.5;
    if (!result.supported) return result;
    for (int i = 0; i < options_.warmup; i++) {
      issue(c, false);
      issue(c, true);
    }
    const int calls = calls_for(c);
    std::vector<double> ours, theirs, ratios;
    for (int b = 0; b < std::max(options_.batches, 5); b++) {
      ours.push_back(batch(c, false, calls));
      theirs.push_back(batch(c, true, calls));
      ratios.push_back(theirs.back() / ours.back());
    }
    result.ours = {median(ours), wrong_of(c, false)};
    result.theirs = {median(theirs), wrong_of(c, true)};
    result.ratio = median(ratios);
    return result;
  }

  size_t wrong_of(const WorkBuffers::Case& c, bool peer) {
    buffers_.fill_inputs(c);
    ranks_.barrier();
    issue(c, peer);
    const size_t wrong = ranks_.sum(buffers_.wrong(c));
    return wrong;
  }

  const Options& options_;
  Ranks ranks_;
  const PeerLibrary& peer_;
  const Shared shared_;
  WorkBuffers buffers_;
};

int number_from(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? -1 : std::atoi(text);
}

}  // namespace

int run_versus_rank(const Options& options) {
  int rank = number_from("COMM_BENCH_RANK"), ranks = options.ranks;
  const bool known = rank >= 0;
  if (known) pin_to_core(rank);  // before the library's own threads start, which go by it
  const PeerPlan plan = plan_peer(options.versus_peer, options.ranks);
  const PeerLibrary peer(plan.object, plan.name, &rank, &ranks, options.versus_folder);
  if (!known) pin_to_core(rank);
  const Shared shared = map_shared(options.versus_folder);
  uniUniqueId id{};
  if (rank == 0) must(uniGetUniqueId(&id), "uniGetUniqueId");
  peer.broadcast(&id, sizeof id);
  const uniConfig_t config = make_config(options);
  uniComm_t comm = nullptr;
  must(uniCommInitRankConfig(&comm, ranks, id, rank, &config), "uniCommInitRankConfig");
  int status = 0;
  {
    Versus versus(options, {comm, rank, ranks}, peer, shared);
    const Json rows = versus.all();
    if (rank == 0) {
      std::ofstream file(options.versus_folder + "/result.json");
      file << Json{{"version", peer.version()}, {"ranks", ranks}, {"results", rows}}.dump() << "\n";
      if (!file.flush()) status = 3;
    }
  }
  must(uniCommDestroy(comm), "uniCommDestroy");
  return status;
}

}  // namespace bench
