#include "tools/uni_plan/topology.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tools/uni_plan/files.h"

namespace unisono::uni_plan {
namespace {

using nlohmann::ordered_json;

constexpr int32_t kMaxRanks = 1 << 15;
constexpr size_t kMaxFileBytes = 1 << 20;

Status wrong(const std::string& field, const char* wanted) {
  return error(Code::kInvalidArgument, "{}: {} is wanted", field, wanted);
}

Status take(const std::string& field, const ordered_json& json, double* value) {
  if (!json.is_number()) return wrong(field, "a number");
  *value = json.get<double>();
  return {};
}

template <class Integer>
Status take_integer(const std::string& field, const ordered_json& json, Integer* value) {
  if (!json.is_number_integer()) return wrong(field, "an integer");
  const auto wide = json.get<int64_t>();
  if (wide < 0 || wide > INT32_MAX) return wrong(field, "an integer from 0 to 2^31 - 1");
  *value = static_cast<Integer>(wide);
  return {};
}

Status take_link(const std::string& field, const ordered_json& json, Link* link) {
  if (!json.is_object()) return wrong(field, "{\"gbit_per_s\": ..., \"latency_us\": ...}");
  for (const auto& [key, value] : json.items()) {
    if (key == "gbit_per_s") {
      TRY(take(field + "." + key, value, &link->gbit_per_s));
    } else if (key == "latency_us") {
      TRY(take(field + "." + key, value, &link->latency_us));
    } else if (key == "burst_bytes") {
      TRY(take(field + "." + key, value, &link->burst_bytes));
    } else {
      return error(Code::kInvalidArgument, "{}.{}: there is no such field", field, key);
    }
  }
  return {};
}

Status take_counts(const std::string& field, const ordered_json& json,
                   std::vector<int32_t>* counts) {
  if (!json.is_array()) return wrong(field, "a list of numbers");
  counts->clear();
  for (const ordered_json& value : json) {
    counts->push_back(0);
    TRY(take_integer(field, value, &counts->back()));
  }
  return {};
}

Status take_slow_hosts(const std::string& field, const ordered_json& json, Topology* topology) {
  if (!json.is_array()) return wrong(field, "a list of [host, gbit_per_s]");
  for (const ordered_json& pair : json) {
    if (!pair.is_array() || pair.size() != 2) return wrong(field, "a list of [host, gbit_per_s]");
    auto& [host, rate] = topology->slow_hosts.emplace_back();
    TRY(take_integer(field, pair[0], &host));
    TRY(take(field, pair[1], &rate));
  }
  return {};
}

Status take_field(const std::string& key, const ordered_json& value, Topology* t) {
  if (key == "hosts") return take_integer(key, value, &t->hosts);
  if (key == "ranks_per_host") return take_integer(key, value, &t->ranks_per_host);
  if (key == "ranks_on_host") return take_counts(key, value, &t->ranks_on_host);
  if (key == "nic") return take_link(key, value, &t->nic);
  if (key == "memory") return take_link(key, value, &t->memory);
  if (key == "slow_hosts") return take_slow_hosts(key, value, t);
  if (key == "hosts_per_rack") return take_integer(key, value, &t->hosts_per_rack);
  if (key == "uplink") return take_link(key, value, &t->uplink);
  if (key == "overhead_us") return take(key, value, &t->overhead_us);
  if (key == "reduce_gigabytes_per_s") return take(key, value, &t->reduce_gigabytes_per_s);
  if (key == "message_gigabytes_per_s") return take(key, value, &t->message_gigabytes_per_s);
  if (key == "copy_gigabytes_per_s") return take(key, value, &t->copy_gigabytes_per_s);
  if (key == "cores") return take_integer(key, value, &t->cores);
  if (key == "switch_us") return take(key, value, &t->switch_us);
  if (key == "slice_bytes") return take_integer(key, value, &t->slice_bytes);
  if (key == "slots") return take_integer(key, value, &t->slots);
  return error(Code::kInvalidArgument, "{}: there is no such field", key);
}

Status check_link(const char* name, const Link& link) {
  if (!(link.gbit_per_s > 0) || !std::isfinite(link.gbit_per_s))
    return error(Code::kInvalidArgument, "{}.gbit_per_s: {} is no rate", name, link.gbit_per_s);
  if (!(link.latency_us >= 0) || !std::isfinite(link.latency_us))
    return error(Code::kInvalidArgument, "{}.latency_us: {} is no time", name, link.latency_us);
  if (!(link.burst_bytes >= 0) || !std::isfinite(link.burst_bytes))
    return error(Code::kInvalidArgument, "{}.burst_bytes: {} is no size", name, link.burst_bytes);
  return {};
}

ordered_json link_json(const Link& link) {
  ordered_json json = {{"gbit_per_s", link.gbit_per_s}, {"latency_us", link.latency_us}};
  if (link.burst_bytes > 0) json["burst_bytes"] = link.burst_bytes;
  return json;
}

}  // namespace

int32_t Topology::ranks() const {
  if (ranks_on_host.empty()) return hosts * ranks_per_host;
  return std::accumulate(ranks_on_host.begin(), ranks_on_host.end(), 0);
}

std::vector<int32_t> Topology::host_of_ranks() const {
  std::vector<int32_t> host_of;
  const auto count = ranks_on_host.empty() ? hosts : static_cast<int32_t>(ranks_on_host.size());
  for (int32_t host = 0; host < count; ++host) {
    const int32_t here =
        ranks_on_host.empty() ? ranks_per_host : ranks_on_host[static_cast<size_t>(host)];
    host_of.insert(host_of.end(), static_cast<size_t>(here), host);
  }
  return host_of;
}

int32_t Topology::period() const {
  if (!ranks_on_host.empty() || !slow_hosts.empty() || cores > 0) return ranks();
  const int64_t period = int64_t{ranks_per_host} * (hosts_per_rack == 0 ? 1 : hosts_per_rack);
  return ranks() % period == 0 ? static_cast<int32_t>(period) : ranks();
}

Status Topology::check() const {
  int64_t all = ranks_on_host.empty() ? int64_t{hosts} * ranks_per_host : 0;
  for (const int32_t here : ranks_on_host) {
    if (here < 1) return error(Code::kInvalidArgument, "ranks_on_host: {} ranks", here);
    all += here;
  }
  if (all < 1 || all > kMaxRanks)
    return error(Code::kInvalidArgument, "hosts, ranks_per_host: {} ranks; 1 to {} are simulated",
                 all, kMaxRanks);
  TRY(check_link("nic", nic));
  TRY(check_link("memory", memory));
  TRY(check_link("uplink", uplink));
  const auto last_host = host_of_ranks().back();
  for (const auto& [host, rate] : slow_hosts) {
    if (host < 0 || host > last_host)
      return error(Code::kInvalidArgument, "slow_hosts: there is no host {}", host);
    TRY(check_link("slow_hosts", {rate, 0}));
  }
  const auto no_cost = [](double value) { return !(value >= 0) || !std::isfinite(value); };
  if (no_cost(overhead_us)) return wrong("overhead_us", "a time");
  if (no_cost(reduce_gigabytes_per_s)) return wrong("reduce_gigabytes_per_s", "a rate or 0");
  if (no_cost(message_gigabytes_per_s)) return wrong("message_gigabytes_per_s", "a rate or 0");
  if (no_cost(copy_gigabytes_per_s)) return wrong("copy_gigabytes_per_s", "a rate or 0");
  if (cores < 0) return wrong("cores", "a number, or 0 for one a rank");
  if (no_cost(switch_us)) return wrong("switch_us", "a time");
  if (slice_bytes < 64) return wrong("slice_bytes", "at least 64");
  if (slots < 2 || slots > 64) return wrong("slots", "2 to 64");
  return {};
}

Status read_topology(const std::string& path, Topology* topology) {
  TRY_ASSIGN(const std::string text, read_file(path, kMaxFileBytes));
  const ordered_json json = ordered_json::parse(text, nullptr, false);
  if (!json.is_object())
    return error(Code::kInvalidArgument, "'{}' does not hold a JSON object", path);
  for (const auto& [key, value] : json.items()) {
    const Status status = take_field(key, value, topology);
    if (!status.ok()) return status.annotate("'" + path + "'");
  }
  return {};
}

std::string topology_json(const Topology& t) {
  ordered_json json;
  if (t.ranks_on_host.empty()) {
    json["hosts"] = t.hosts;
    json["ranks_per_host"] = t.ranks_per_host;
  } else {
    json["ranks_on_host"] = t.ranks_on_host;
  }
  json["nic"] = link_json(t.nic);
  json["memory"] = link_json(t.memory);
  if (!t.slow_hosts.empty()) json["slow_hosts"] = t.slow_hosts;
  if (t.hosts_per_rack > 0) {
    json["hosts_per_rack"] = t.hosts_per_rack;
    json["uplink"] = link_json(t.uplink);
  }
  json["overhead_us"] = t.overhead_us;
  json["reduce_gigabytes_per_s"] = t.reduce_gigabytes_per_s;
  json["message_gigabytes_per_s"] = t.message_gigabytes_per_s;
  json["copy_gigabytes_per_s"] = t.copy_gigabytes_per_s;
  if (t.cores > 0) {
    json["cores"] = t.cores;
    json["switch_us"] = t.switch_us;
  }
  json["slice_bytes"] = t.slice_bytes;
  json["slots"] = t.slots;
  return json.dump();
}

}  // namespace unisono::uni_plan
