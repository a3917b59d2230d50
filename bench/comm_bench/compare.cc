#include "bench/comm_bench/compare.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <utility>

#include "bench/comm_bench/rank_test.h"

namespace bench {
namespace {

struct Sample {
  std::string row;
  std::vector<double> batches;
};

// Collects the samples of one file. The first thing that is not as -J writes it goes to problem().
class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}
  const std::string& problem() const { return problem_; }

  // Null, with the problem said, if it is missing or of another type.
  const Json* find(const Json& in, const std::string& where, const char* key,
                   bool (Json::*is)() const, const char* type) {
    const std::string path = where.empty() ? key : where + "." + key;
    if (!in.is_object() || !in.contains(key)) return fail(path, "is missing");
    const Json& value = in[key];
    return (value.*is)() ? &value : fail(path, std::string("is not ") + type);
  }

  std::string collective(const Json& all) {
    const Json* config = find(all, "", "config", &Json::is_object, "an object");
    if (config == nullptr) return "";
    const Json* name = find(*config, "config", "collective", &Json::is_string, "a string");
    return name == nullptr ? "" : name->get<std::string>();
  }

  std::vector<Sample> samples(const Json& all) {
    std::vector<Sample> found;
    const Json* results = find(all, "", "results", &Json::is_array, "an array");
    if (results == nullptr) return found;
    for (size_t i = 0; i < results->size() && problem_.empty(); i++) {
      const std::string where = "results[" + std::to_string(i) + "]";
      const std::string row = row_name((*results)[i], where);
      for (const char* place : {"out_of_place", "in_place"}) {
        if (!problem_.empty()) return found;
        if (!(*results)[i].contains(place)) continue;
        found.push_back({row + " " + place, batches((*results)[i][place], where + "." + place)});
      }
    }
    return found;
  }

 private:
  const Json* fail(const std::string& path, const std::string& why) {
    if (problem_.empty()) problem_ = name_ + ": key '" + path + "' " + why;
    return nullptr;
  }

  std::string row_name(const Json& result, const std::string& where) {
    const Json* size = find(result, where, "size", &Json::is_number_unsigned, "a size");
    const Json* type = find(result, where, "type", &Json::is_string, "a string");
    const Json* op = find(result, where, "redop", &Json::is_string, "a string");
    const Json* root = find(result, where, "root", &Json::is_number_integer, "a rank");
    if (size == nullptr || type == nullptr || op == nullptr || root == nullptr) return "";
    char text[128];
    snprintf(text, sizeof text, "%12llu %9s %8s %5lld",
             static_cast<unsigned long long>(size->get<uint64_t>()),
             type->get<std::string>().c_str(), op->get<std::string>().c_str(),
             static_cast<long long>(root->get<int64_t>()));
    return text;
  }

  std::vector<double> batches(const Json& timing, const std::string& where) {
    std::vector<double> times;
    const Json* list = find(timing, where, "batches", &Json::is_array, "an array");
    if (list == nullptr) return times;
    for (const Json& time : *list) {
      if (!time.is_number()) {
        fail(where + ".batches", "holds what is no number");
        return times;
      }
      times.push_back(time.get<double>());
    }
    if (times.empty()) fail(where + ".batches", "is empty");
    return times;
  }

  std::string name_, problem_;
};

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

RowDifference difference(const Sample& a, const Sample& b) {
  RowDifference d;
  d.row = a.row;
  d.median_a = middle(a.batches);
  d.median_b = middle(b.batches);
  d.ratio = d.median_a > 0 ? d.median_b / d.median_a : 0;
  const RankTest test = rank_test(a.batches, b.batches);
  d.u = test.u;
  d.p = test.p;
  d.least_p = test.least_p;
  const double half = static_cast<double>(a.batches.size() * b.batches.size()) / 2;
  d.verdict = test.u > half ? RowDifference::kFaster : RowDifference::kSlower;  // if it differs
  return d;
}

// Y. Benjamini, Y. Hochberg, Controlling the false discovery rate, J. R. Statist. Soc. B 57 (1995):
// with many rows some p are small by chance, so that the k smallest differ only if the k-th is at
// most k/rows of the rate.
void judge(std::vector<RowDifference>* rows) {
  std::vector<double> sorted;
  for (const RowDifference& row : *rows) sorted.push_back(row.p);
  std::sort(sorted.begin(), sorted.end());
  double most = -1;
  for (size_t k = 1; k <= sorted.size(); k++) {
    const double limit = kFalseRate * static_cast<double>(k) / static_cast<double>(sorted.size());
    if (sorted[k - 1] <= limit) most = sorted[k - 1];
  }
  for (RowDifference& row : *rows) {
    if (row.p <= most) continue;
    row.verdict = row.least_p > kFalseRate ? RowDifference::kTooFew : RowDifference::kSame;
  }
}

bool load(const std::string& name, Json* all) {
  std::ifstream file(name);
  if (!file) {
    fprintf(stderr, "comm-bench: %s: cannot be read\n", name.c_str());
    return false;
  }
  *all = Json::parse(file, nullptr, false);
  if (all->is_discarded()) fprintf(stderr, "comm-bench: %s: is not JSON\n", name.c_str());
  return !all->is_discarded();
}

const char* words(RowDifference::Verdict verdict) {
  const char* const kWords[] = {"same", "faster", "slower", "too few batches"};
  return kWords[verdict];
}

}  // namespace

Comparison compare(const Json& a, const Json& b, const std::string& name_a,
                   const std::string& name_b) {
  Comparison result;
  Reader read_a(name_a), read_b(name_b);
  const std::string what_a = read_a.collective(a), what_b = read_b.collective(b);
  const std::vector<Sample> rows_a = read_a.samples(a), rows_b = read_b.samples(b);
  result.problem = read_a.problem().empty() ? read_b.problem() : read_a.problem();
  if (result.problem.empty() && what_a != what_b) {
    result.problem = "key 'config.collective': " + name_a + " has '" + what_a + "', " + name_b +
                     " has '" + what_b + "'";
  }
  if (!result.problem.empty()) return result;
  std::map<std::string, const Sample*> in_b;
  for (const Sample& row : rows_b) in_b[row.row] = &row;
  for (const Sample& row : rows_a) {
    const auto other = in_b.find(row.row);
    if (other == in_b.end()) {
      result.only_a.push_back(row.row);
      continue;
    }
    result.rows.push_back(difference(row, *other->second));
    in_b.erase(other);
  }
  for (const Sample& row : rows_b) {
    if (in_b.count(row.row) != 0) result.only_b.push_back(row.row);
  }
  judge(&result.rows);
  if (result.rows.empty()) {
    result.problem =
        "key 'results': " + name_a + " and " + name_b + " have no row of one size, type and op";
  }
  return result;
}

int compare_files(const std::string& name_a, const std::string& name_b) {
  Json a, b;
  if (!load(name_a, &a) || !load(name_b, &b)) return 2;
  const Comparison c = compare(a, b, name_a, name_b);
  if (!c.problem.empty()) {
    fprintf(stderr, "comm-bench: %s\n", c.problem.c_str());
    return 2;
  }
  printf(
      "# A %s\n# B %s\n# Mann-Whitney U of the times of batches, two-sided; at most %.0f %% of the "
      "rows that differ by chance (Benjamini-Hochberg)\n",
      name_a.c_str(), name_b.c_str(), kFalseRate * 100);
  printf("#%11s %9s %8s %5s %-12s %11s %11s %7s %8s  %s\n", "size", "type", "redop", "root",
         "place", "A (us)", "B (us)", "B/A", "p", "B is");
  size_t differ = 0;
  double least_p = 1;
  for (const RowDifference& d : c.rows) {
    const size_t at = d.row.rfind(' ');
    printf("%s %-12s %11.3f %11.3f %7.3f %8.4f  %s\n", d.row.substr(0, at).c_str(),
           d.row.c_str() + at + 1, d.median_a, d.median_b, d.ratio, d.p, words(d.verdict));
    differ += d.verdict == RowDifference::kFaster || d.verdict == RowDifference::kSlower;
    least_p = std::min(least_p, d.least_p);
  }
  for (const std::string& row : c.only_a) printf("%s  only in A\n", row.c_str());
  for (const std::string& row : c.only_b) printf("%s  only in B\n", row.c_str());
  printf("# %zu of %zu rows differ\n", differ, c.rows.size());
  const double limit = kFalseRate / static_cast<double>(c.rows.size());
  if (least_p > limit) {
    printf("# one row alone would have to reach p %.4f, these batches reach %.4f: use --batches\n",
           limit, least_p);
  }
  return differ > 0 ? 1 : 0;
}

}  // namespace bench
