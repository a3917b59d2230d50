#include "bench/comm_bench/ping_pong.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/comm_bench/launch.h"
#include "bench/comm_bench/run_facts.h"
#include "bench/comm_bench/slow_links.h"

namespace bench {
namespace {

constexpr int kShortFactor = 10;       // short messages: this many times -n
constexpr double kBudgetUs = 500'000;  // a pair's batches of one size; a slow link gets fewer trips

struct PairResult {
  double latency_us = 0, gigabytes_per_s = 0;
  uint64_t wrong = 0;
  char transport[32] = {};
};

// One end of a pair. The leader (lower rank) sends first and keeps the time.
class End {
 public:
  End(const Options& options, const Ranks& ranks, int peer)
      : options_(options), comm_(ranks.comm), peer_(peer), leads_(ranks.rank < peer) {
    const size_t most = std::max({options.begin_bytes, options.end_bytes, size_t{1}});
    out_.resize(most);
    in_.resize(most);
    for (size_t i = 0; i < most; i++)
      out_[i] = static_cast<char>(i * 31 + static_cast<size_t>(peer));
  }

  // Half a round trip in microseconds, the median of batches; 0 at the end that does not lead.
  double half_trip_us(size_t bytes, int most_trips) {
    trip(bytes);
    trip(bytes);
    const double start = now_us();
    trip(bytes);
    const double once = std::max(now_us() - start, 0.01);
    uint64_t trips = static_cast<uint64_t>(
        std::clamp(kBudgetUs / options_.batches / once, 1.0, static_cast<double>(most_trips)));
    agree(&trips);
    std::vector<double> batches;
    for (int b = 0; b < options_.batches; b++) {
      const double before = now_us();
      for (uint64_t i = 0; i < trips; i++) trip(bytes);
      batches.push_back((now_us() - before) / (2.0 * static_cast<double>(trips)));
    }
    return leads_ ? median(std::move(batches)) : 0;
  }

  // Bytes of one more trip that did not come back as they went.
  uint64_t wrong_bytes(size_t bytes) {
    std::fill(in_.begin(), in_.end(), '\x5a');
    trip(bytes);
    uint64_t wrong = 0;
    for (size_t i = 0; leads_ && i < bytes; i++) wrong += in_[i] != out_[i];
    return wrong;
  }

 private:
  void send(const void* from, size_t bytes) {
    must(uniSend(from, bytes, uniUint8, peer_, comm_, nullptr), "uniSend", comm_);
  }
  void receive(void* to, size_t bytes) {
    must(uniRecv(to, bytes, uniUint8, peer_, comm_, nullptr), "uniRecv", comm_);
  }
  void trip(size_t bytes) {
    if (leads_) {
      send(out_.data(), bytes);
      receive(in_.data(), bytes);
    } else {
      receive(in_.data(), bytes);
      send(in_.data(), bytes);
    }
  }
  void agree(uint64_t* leaders) {
    if (leads_) {
      send(leaders, sizeof *leaders);
    } else {
      receive(leaders, sizeof *leaders);
    }
  }

  const Options& options_;
  uniComm_t comm_;
  int peer_;
  bool leads_;
  std::vector<char> out_, in_;
};

// What carries a pair. A rank that uses one transport uses it for all; else a communicator of the
// two, which chooses as the large one did, tells.
std::string transport_between(const Ranks& ranks, const std::vector<RankLine>& lines, int a,
                              int b) {
  for (const int rank : {a, b}) {
    const std::string& used = lines[static_cast<size_t>(rank)].transport;
    if (used.find(',') == std::string::npos) return used;
  }
  const int members[] = {a, b};
  uniComm_t pair = nullptr;
  must(uniCommCreateGroup(ranks.comm, members, 2, a * ranks.ranks + b, &pair, nullptr),
       "uniCommCreateGroup", ranks.comm);
  uniCommInfo_t info{};
  info.size = sizeof info;
  must(uniCommQuery(pair, &info), "uniCommQuery", pair);
  must(uniCommDestroy(pair), "uniCommDestroy");
  return info.transports;
}

// Every rank calls, and every rank gets the result.
PairResult measure_pair(const Options& o, const Ranks& ranks, const std::vector<RankLine>& lines,
                        int a, int b) {
  PairResult result;
  ranks.barrier();  // all others wait from here on in the broadcast below
  if (ranks.rank == a || ranks.rank == b) {
    snprintf(result.transport, sizeof result.transport, "%s",
             transport_between(ranks, lines, a, b).c_str());
    End end(o, ranks, ranks.rank == a ? b : a);
    result.latency_us = end.half_trip_us(o.begin_bytes, o.iterations * kShortFactor);
    const double us = end.half_trip_us(o.end_bytes, o.iterations);
    result.gigabytes_per_s = us > 0 ? static_cast<double>(o.end_bytes) / us * 1e-3 : 0;
    if (o.check != 0) result.wrong = end.wrong_bytes(o.end_bytes);
  }
  must(uniBroadcast(&result, &result, sizeof result, uniUint8, a, ranks.comm, nullptr),
       "uniBroadcast", ranks.comm);
  return result;
}

void print_header(const Options& o, const std::vector<RankLine>& lines) {
  printf("# comm-bench %s libunisono %s\n", version_text().c_str(), version_text().c_str());
  printf(
      "# pingpong: one pair at a time; latency: half a round trip of %zu bytes; bandwidth: %zu "
      "bytes each way in turn; iters %d (latency: %d, slow links: fewer) batches %d (median) check "
      "%d\n",
      o.begin_bytes, o.end_bytes, o.iterations, o.iterations * kShortFactor, o.batches, o.check);
  print_lines(lines);
  printf("#\n#%7s %7s %10s %10s %7s  %s\n", "rank", "rank", "latency", "bandwidth", "#wrong",
         "transport");
  printf("#%7s %7s %10s %10s\n", "", "", "(us)", "(GB/s)");
  fflush(stdout);
}

void print_slow(const Json& pingpong) {
  printf("# Median of all pairs  : %.3f us, %.3f GB/s\n# Rule                 : %s\n",
         pingpong["median_latency"].get<double>(), pingpong["median_bandwidth"].get<double>(),
         kSlowRule);
  printf("# Slow links           : %zu\n", pingpong["slow_links"].size());
  for (const Json& link : pingpong["slow_links"]) {
    printf("#   rank %d (%s) - rank %d (%s), %s: %.2f x the median bandwidth, %.2f x its latency\n",
           link["ranks"][0].get<int>(), link["hosts"][0].get<std::string>().c_str(),
           link["ranks"][1].get<int>(), link["hosts"][1].get<std::string>().c_str(),
           link["transport"].get<std::string>().c_str(), link["bandwidth_ratio"].get<double>(),
           link["latency_ratio"].get<double>());
  }
  if (pingpong.contains("common_host")) {
    printf("#   all of them end at host %s\n", pingpong["common_host"].get<std::string>().c_str());
  }
}

// The footer and the files; whether all is well.
bool finish(const Options& options, Json all, uint64_t wrong) {
  name_slow_links(&all);
  printf("# Out of bounds values : %llu %s\n", static_cast<unsigned long long>(wrong),
         wrong == 0 ? "OK" : "FAILED");
  print_slow(all["pingpong"]);
  printf("#\n");
  fflush(stdout);
  all["out_of_bounds"] = {{"count", wrong}, {"okay", wrong == 0}};
  return write_files(options, all) && wrong == 0;
}

}  // namespace

int ping_pong(const Options& options, const Ranks& ranks) {
  const std::vector<RankLine> lines = gather_lines(ranks);
  Json all;
  if (ranks.rank == 0) {
    all = run_facts(options, ranks, lines);
    all["pingpong"] = {{"latency_bytes", options.begin_bytes},
                       {"bandwidth_bytes", options.end_bytes},
                       {"pairs", Json::array()}};
    print_header(options, lines);
  }
  uint64_t wrong = 0;
  for (int a = 0; a < ranks.ranks; a++) {
    for (int b = a + 1; b < ranks.ranks; b++) {
      const PairResult r = measure_pair(options, ranks, lines, a, b);
      wrong += r.wrong;
      if (ranks.rank != 0) continue;
      printf(" %7d %7d %10.3f %10.3f %7s  %s\n", a, b, r.latency_us, r.gigabytes_per_s,
             options.check != 0 ? std::to_string(r.wrong).c_str() : "N/A", r.transport);
      fflush(stdout);
      all["pingpong"]["pairs"].push_back({{"ranks", {a, b}},
                                          {"latency", r.latency_us},
                                          {"bandwidth", r.gigabytes_per_s},
                                          {"transport", r.transport}});
    }
  }
  const int ok = ranks.rank != 0 || finish(options, std::move(all), wrong) ? 1 : 0;
  return ranks.combine(ok, 2) > 0.5 ? 0 : 1;
}

}  // namespace bench
