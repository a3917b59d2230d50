#include "bench/comm_bench/slow_links.h"

#include <algorithm>
#include <map>

namespace bench {
namespace {

constexpr double kLeastBandwidth = 0.5, kMostLatency = 2;

// Of an even number the mean of the middle two, so that where half of all pairs are slow the rule
// still finds them.
double median_of(const Json& pairs, const char* key) {
  std::vector<double> values;
  for (const Json& pair : pairs) values.push_back(pair[key].get<double>());
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

// The host at which all these links end; empty if there is none, or if it is the only one there.
std::string common_host(const Json& links, size_t hosts_in_all) {
  if (links.size() < 2 || hosts_in_all < 2) return "";
  for (const Json& candidate : links[0]["hosts"]) {
    const bool everywhere = std::all_of(links.begin(), links.end(), [&](const Json& link) {
      return link["hosts"][0] == candidate || link["hosts"][1] == candidate;
    });
    if (everywhere) return candidate.get<std::string>();
  }
  return "";
}

}  // namespace

void name_slow_links(Json* all) {
  Json& pingpong = (*all)["pingpong"];
  const Json& pairs = pingpong["pairs"];
  std::map<int, std::string> host_of;
  std::map<std::string, int> hosts;
  for (const Json& device : (*all)["devices"]) {
    host_of[device["rank"].get<int>()] = device["host"].get<std::string>();
    hosts[device["host"].get<std::string>()]++;
  }
  const double latency = median_of(pairs, "latency"), bandwidth = median_of(pairs, "bandwidth");
  Json slow = Json::array();
  for (const Json& pair : pairs) {
    Json why = Json::array();
    if (pair["bandwidth"].get<double>() < kLeastBandwidth * bandwidth) why.push_back("bandwidth");
    if (pair["latency"].get<double>() > kMostLatency * latency) why.push_back("latency");
    if (why.empty()) continue;
    const int a = pair["ranks"][0].get<int>(), b = pair["ranks"][1].get<int>();
    slow.push_back(
        {{"ranks", {a, b}},
         {"hosts", {host_of[a], host_of[b]}},
         {"transport", pair["transport"]},
         {"latency_ratio", latency > 0 ? pair["latency"].get<double>() / latency : 0},
         {"bandwidth_ratio", bandwidth > 0 ? pair["bandwidth"].get<double>() / bandwidth : 0},
         {"why", why}});
  }
  const std::string common = common_host(slow, hosts.size());
  pingpong["rule"] = kSlowRule;
  pingpong["median_latency"] = latency;
  pingpong["median_bandwidth"] = bandwidth;
  pingpong["slow_links"] = std::move(slow);
  if (!common.empty()) pingpong["common_host"] = common;
}

}  // namespace bench
