#include "bench/comm_bench/race.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/comm_bench/bounds.h"
#include "bench/comm_bench/json.h"
#include "bench/comm_bench/run_facts.h"
#include "bench/comm_bench/work.h"

namespace bench {
namespace {

constexpr double kBatchUs = 3000;  // far over the clock's grain, far under a time slice
constexpr int kMostCalls = 5000;

struct Entry {
  std::string name;  // empty: the planner chooses
  uniComm_t comm = nullptr;
  std::vector<double> batches;
};

class Race {
 public:
  Race(const Options& options, const Ranks& ranks, const Shared& shared)
      : options_(options),
        ranks_(ranks),
        shared_(shared),
        buffers_(options, ranks.comm, ranks.rank, ranks.ranks,
                 std::max<size_t>(options.end_bytes, 4096)) {
    add("");
    uniAlgorithmInfo_t info{};
    info.size = sizeof info;
    for (int i = 0; uniAlgorithmQuery(i, &info) == uniSuccess; i++) {
      if (!options.reproducible) add(info.name);
      info.size = sizeof info;
    }
  }
  ~Race() {
    for (Entry& entry : entries_) must(uniCommDestroy(entry.comm), "uniCommDestroy");
  }
  Race(const Race&) = delete;

  int all() {
    const std::vector<RankLine> lines = gather_lines(ranks_);
    Json json = run_facts(options_, ranks_, lines);
    json["race"] = Json::array();
    print_head(lines);
    for (const auto& [type, op] : options_.typed_ops) {
      for (const size_t bytes : sizes_to_run(options_)) {
        WorkBuffers::Case c{&type, op.op, std::max(options_.root, 0),
                            sizes_of(options_.work, bytes, type.bytes, ranks_.ranks), false};
        json["race"].push_back(one(c));
      }
    }
    int ok = wrong_ == 0 ? 1 : 0;
    if (ranks_.rank == 0) {
      printf("# Out of bounds values : %zu %s\n", wrong_, wrong_ == 0 ? "OK" : "FAILED");
      if (!write_files(options_, json)) ok = 0;
    }
    return ranks_.combine(ok, 2) > 0.5 ? 0 : 1;
  }

 private:
  void add(const std::string& name) {
    uniConfig_t config = make_config(options_);
    if (!name.empty()) config.algorithm = name.c_str();
    Entry entry{name, nullptr, {}};
    must(uniCommSplit(ranks_.comm, 0, ranks_.rank, &entry.comm, &config), "uniCommSplit",
         ranks_.comm);
    entries_.push_back(std::move(entry));
  }

  void print_head(const std::vector<RankLine>& lines) const {
    if (ranks_.rank != 0) return;
    printf("# comm-bench %s: %s, every algorithm in turn (us, median of %d batches)\n",
           version_text().c_str(), options_.work_name.c_str(), options_.batches);
    print_lines(lines);
    printf("#%11s %-18s %10s  %-18s %10s %6s  %s\n", "size", "chosen", "time", "best", "time",
           "ratio", "all");
    fflush(stdout);
  }

  void call(const Entry& entry, const WorkBuffers::Case& c) {
    buffers_.use(entry.comm);
    buffers_.issue(c, nullptr);
  }

  // Mean time of a call on the slowest rank.
  double batch(const Entry& entry, const WorkBuffers::Case& c, int calls) {
    ranks_.barrier();
    const double start = now_us();
    for (int i = 0; i < calls; i++) call(entry, c);
    return ranks_.combine((now_us() - start) / calls, 3);
  }

  // Those that run this case at all: a forced algorithm that cannot leaves it to the planner.
  std::vector<Entry*> runners(const WorkBuffers::Case& c) {
    std::vector<Entry*> list;
    for (Entry& entry : entries_) {
      entry.batches.clear();
      buffers_.fill_inputs(c);
      ranks_.barrier();
      call(entry, c);
      if (!entry.name.empty() && last_algorithm(entry.comm) != entry.name) continue;
      wrong_ += ranks_.sum(buffers_.wrong(c));
      list.push_back(&entry);
    }
    return list;
  }

  Json one(const WorkBuffers::Case& c) {
    const double flag_us = flag_latency_us(shared_, ranks_);
    const std::vector<Entry*> list = runners(c);
    const std::string chosen = last_algorithm(entries_[0].comm);
    std::vector<int> calls;
    for (Entry* entry : list) {
      const double once = batch(*entry, c, 3);
      calls.push_back(static_cast<int>(
          std::clamp(kBatchUs / std::max(once, 1e-3), 2.0, static_cast<double>(kMostCalls))));
    }
    for (int b = 0; b < options_.batches; b++) {
      for (size_t i = 0; i < list.size(); i++) {
        batch(*list[i], c, std::max(1, calls[i] / 10));  // its own caches and slots again
        list[i]->batches.push_back(batch(*list[i], c, calls[i]));
      }
    }
    return row(c, list, chosen, flag_us);
  }

  Json row(const WorkBuffers::Case& c, const std::vector<Entry*>& list, const std::string& chosen,
           double flag_us) const {
    const Entry* best = nullptr;
    const Entry* same = nullptr;  // the chosen one, forced: the planner's choice without its run
    Json times = Json::object();
    std::string text;
    for (const Entry* entry : list) {
      if (entry->name.empty()) continue;
      const double us = median(entry->batches);
      times[entry->name] = us;
      char buffer[64];
      snprintf(buffer, sizeof buffer, " %s %.2f", entry->name.c_str(), us);
      text += buffer;
      if (best == nullptr || us < median(best->batches)) best = entry;
      if (entry->name == chosen) same = entry;
    }
    const double free_us = median(list[0]->batches);
    const double best_us = best == nullptr ? free_us : median(best->batches);
    // Of each round, so that what changed between rounds cancels out.
    std::vector<double> ratios;
    for (size_t b = 0; same != nullptr && b < same->batches.size(); b++) {
      ratios.push_back(same->batches[b] / best->batches[b]);
    }
    const double ratio = ratios.empty() ? 1 : median(ratios);
    if (ranks_.rank == 0) {
      printf(" %11zu %-18s %10.2f  %-18s %10.2f %6.2f %s\n", c.sizes.bytes, chosen.c_str(), free_us,
             best == nullptr ? "-" : best->name.c_str(), best_us, ratio, text.c_str());
      fflush(stdout);
    }
    return {{"size", c.sizes.bytes},
            {"type", c.type->name},
            {"chosen", chosen},
            {"time", free_us},
            {"best", best == nullptr ? chosen : best->name},
            {"ratio", ratio},
            {"flag", flag_us},
            {"times", times}};
  }

  const Options& options_;
  Ranks ranks_;
  const Shared& shared_;
  WorkBuffers buffers_;
  std::vector<Entry> entries_;
  size_t wrong_ = 0;
};

}  // namespace

int race(const Options& options, const Ranks& ranks, const Shared& shared) {
  return Race(options, ranks, shared).all();
}

}  // namespace bench
