#include "bench/comm_bench/report.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace bench {
namespace {

double algorithm_gbps(const Row& row, const Timing& t) {
  return t.us > 0 ? static_cast<double>(row.c.sizes.bytes) / t.us * 1e-3 : 0;
}

}  // namespace

Report::Report(const Options& options, int ranks)
    : options_(options), ranks_(ranks), terminal_(isatty(STDERR_FILENO) == 1) {}

void Report::header(const std::vector<RankLine>& lines, Json facts) {
  printf("# comm-bench %s libunisono %s\n", version_text().c_str(), version_text().c_str());
  printf(
      "# collective %s minBytes %zu maxBytes %zu %s %zu warmup %d iters %d batches %d (median) "
      "average %d check %d "
      "buffers %s cache %s %s\n",
      options_.work_name.c_str(), options_.begin_bytes, options_.end_bytes,
      options_.factor > 1 ? "factor" : "step",
      options_.factor > 1 ? options_.factor : options_.step_bytes, options_.warmup,
      options_.iterations, options_.batches, options_.average, options_.check,
      options_.registered ? "registered" : "private", cache_name(options_.cache),
      options_.use_stream ? "stream" : "blocking");
  print_lines(lines);
  json_ = std::move(facts);
  json_["results"] = Json::array();
  printf("#\n#%51s %-31s %-31s\n", "", "           out-of-place", "             in-place");
  printf("#%11s %12s %9s %8s %6s %9s %7s %7s %6s %9s %7s %7s %6s  %s\n", "size", "count", "type",
         "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong",
         "algorithm");
  printf("#%11s %12s %9s %8s %6s %9s %7s %7s %6s %9s %7s %7s\n", "(B)", "(elements)", "", "", "",
         "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)");
  fflush(stdout);
}

void Report::progress(const std::string& text) {
  if (!terminal_) return;
  fprintf(stderr, "\r\033[K%s", text.c_str());
  fflush(stderr);
}

void Report::clear_progress() {
  if (terminal_) fprintf(stderr, "\r\033[K");
}

Json Report::timing_json(const Row& row, const Timing& t) const {
  const double alg = algorithm_gbps(row, t);
  Json j = {{"time", t.us}, {"alg_bw", alg}, {"bus_bw", alg * bus_factor(options_.work, ranks_)}};
  if (t.checked) {
    j["nwrong"] = t.wrong;
  } else {
    j["nwrong"] = nullptr;
  }
  j["batches"] = t.batches;
  j["ranks"] = t.rank_us;
  if (options_.per_iteration) {
    j["spread"] = {
        {"min", t.spread.min}, {"max", t.spread.max}, {"p99", t.spread.p99}, {"cv", t.spread.cv}};
  }
  return j;
}

void Report::row(const Row& r) {
  clear_progress();
  const double factor = bus_factor(options_.work, ranks_);
  const auto print_timing = [&](const Timing& t) {
    const double alg = algorithm_gbps(r, t);
    const std::string wrong = t.checked ? std::to_string(t.wrong) : "N/A";
    printf(" %9.3f %7.2f %7.2f %6s", t.us, alg, alg * factor, wrong.c_str());
    wrong_ += t.wrong;
    bus_sum_ += alg * factor;
    bus_count_++;
  };
  printf(" %11zu %12zu %9s %8s %6d", r.c.sizes.bytes, r.c.sizes.elements, r.c.type->name,
         r.op.c_str(), has_root(options_.work) ? r.c.root : -1);
  print_timing(r.out_of_place);
  if (r.has_in_place) {
    print_timing(r.in_place);
  } else {
    printf(" %9s %7s %7s %6s", "N/A", "N/A", "N/A", "N/A");
  }
  printf("  %s", r.algorithm.c_str());
  if (r.bound_us > 0)
    printf("  bound %.3f us, flag %.3f/%.3f us", r.bound_us, r.flag_before_us, r.flag_after_us);
  if (r.private_bound_us[0] > 0)
    printf(", private %.3f/%.3f us", r.private_bound_us[0], r.private_bound_us[1]);
  printf("\n");
  if (options_.per_iteration) {
    const Spread& s = r.out_of_place.spread;
    printf("#   per call (us): min %.3f max %.3f p99 %.3f cv %.3f\n", s.min, s.max, s.p99, s.cv);
  }
  fflush(stdout);
  Json j = {{"size", r.c.sizes.bytes},
            {"count", r.c.sizes.elements},
            {"type", r.c.type->name},
            {"redop", r.op},
            {"root", has_root(options_.work) ? r.c.root : -1},
            {"algorithm", r.algorithm},
            {"out_of_place", timing_json(r, r.out_of_place)}};
  if (r.has_in_place) j["in_place"] = timing_json(r, r.in_place);
  if (r.bound_us > 0) {
    j["bound"] = {
        {"time", r.bound_us}, {"flag_before", r.flag_before_us}, {"flag_after", r.flag_after_us}};
    if (r.private_bound_us[0] > 0) {
      j["bound"]["private_out_of_place"] = r.private_bound_us[0];
      j["bound"]["private_in_place"] = r.private_bound_us[1];
    }
  }
  json_["results"].push_back(j);
}

bool Report::footer() {
  clear_progress();
  const double average = bus_count_ > 0 ? bus_sum_ / static_cast<double>(bus_count_) : 0;
  printf("# Out of bounds values : %zu %s\n# Avg bus bandwidth    : %g\n#\n", wrong_,
         wrong_ == 0 ? "OK" : "FAILED", average);
  fflush(stdout);
  json_["out_of_bounds"] = {{"count", wrong_}, {"okay", wrong_ == 0}};
  json_["average_bus_bandwidth"] = average;
  const bool written = write_files(options_, json_);
  return wrong_ == 0 && written;
}

}  // namespace bench
