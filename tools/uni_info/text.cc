#include "tools/uni_info/text.h"

#include <fmt/format.h>

#include <iterator>

namespace unisono::uni_info {
namespace {

std::string size_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes);
  size_t unit = 0;
  while (size >= 1024 && unit + 1 < std::size(kUnits)) {
    size /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", size,
                     size == static_cast<double>(static_cast<uint64_t>(size)) ? 0 : 1,
                     kUnits[unit]);
}

void add_machine(const Json& machine, std::string* out) {
  if (add_problem(machine, out)) return;
  *out += fmt::format("  {}\n  {} package(s), {} cores, {} hardware threads\n",
                      value_text(machine["processor"]), machine["packages"].get<int>(),
                      machine["physical_cores"].get<int>(), machine["hardware_threads"].get<int>());
  for (const Json& node : machine["numa_nodes"]) {
    *out += fmt::format("  memory node {}: {}, cores {}\n", node["number"].get<int>(),
                        size_text(node["memory_bytes"].get<uint64_t>()), value_text(node["cores"]));
  }
  for (const Json& cache : machine["caches"]) {
    *out += fmt::format("  {}: {} x {}, each for {} hardware thread(s)\n",
                        value_text(cache["name"]), cache["count"].get<int>(),
                        size_text(cache["bytes"].get<uint64_t>()), cache["shared_by"].get<int>());
  }
  *out += fmt::format("  this process: {} usable core(s)", machine["usable_cores"].get<int>());
  if (machine.contains("affinity")) {
    *out += fmt::format(", affinity {}", value_text(machine["affinity"]));
  }
  *out += "\n";
}

void add_addresses(const Json& addresses, std::string* out) {
  if (add_problem(addresses, out)) return;
  if (addresses.empty()) *out += "  none: ranks of this machine only\n";
  for (const Json& address : addresses) *out += fmt::format("  {}\n", value_text(address));
}

void add_interfaces(const Json& interfaces, std::string* out) {
  for (const Json& one : interfaces) {
    std::string line =
        fmt::format("  {:<10} {:<9}", value_text(one["name"]), value_text(one["kind"]));
    if (!one["mtu"].is_null()) line += fmt::format(" MTU {}", value_text(one["mtu"]));
    if (!one["speed_mbit"].is_null()) {
      line += fmt::format(", {} Mbit/s", value_text(one["speed_mbit"]));
    }
    if (!one["memory_node"].is_null()) {
      line += fmt::format(", memory node {}", value_text(one["memory_node"]));
    }
    for (const Json& address : one["addresses"]) line += " " + value_text(address);
    *out += line + "\n";
    if (one.contains("why_not")) {
      *out += fmt::format("  {:<10} left out: {}\n", "", value_text(one["why_not"]));
    }
  }
}

void add_transports(const Json& transports, std::string* out) {
  for (const Json& transport : transports) {
    *out += fmt::format("  {:<6} {:<14} {}\n", value_text(transport["name"]),
                        transport["available"].get<bool>() ? "available" : "not available",
                        value_text(transport["detail"]));
  }
}

void add_devices(const Json& devices, std::string* out) {
  for (const Json& one : devices) {
    *out += fmt::format("  {:<6} {:<14} {}: {}\n", value_text(one["device"]),
                        one["available"].get<bool>() ? "available" : "not available",
                        value_text(one["name"]), value_text(one["detail"]));
  }
}

void add_kernels(const Json& kernels, std::string* out) {
  std::string names;
  for (const Json& target : kernels["available"]) {
    if (!names.empty()) names += ", ";
    names += value_text(target);
  }
  *out += fmt::format("  {} (of {})\n", value_text(kernels["in_use"]), names);
}

// "default", "environment", or which variable, where several would do or it has another name.
std::string from_text(const Json& row) {
  const bool plain = row["source"] == "default" || row["from"] == row["name"];
  return plain ? value_text(row["source"])
               : fmt::format("{} ({})", value_text(row["source"]), value_text(row["from"]));
}

void add_settings(const Json& settings, std::string* out) {
  (void)add_problem(settings, out);
  for (const Json& row : settings["variables"]) {
    *out += fmt::format("  {:<28} {:<22} {}\n", value_text(row["name"]), value_text(row["value"]),
                        from_text(row));
  }
}

}  // namespace

std::string value_text(const Json& value) {
  if (value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty())) {
    return "-";
  }
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool add_problem(const Json& part, std::string* out) {
  if (!part.is_object() || !part.contains("problem")) return false;
  *out += fmt::format("  {}\n", value_text(part["problem"]));
  return true;
}

std::string to_text(const Json& all) {
  std::string out = "Unisono ";
  const Json& library = all["library"];
  if (!add_problem(library, &out)) out += value_text(library["version"]) + "\n";
  const struct {
    const char *title, *key;
    void (*add)(const Json&, std::string*);
  } kParts[] = {
      {"Machine", "machine", add_machine},
      {"Network interfaces", "interfaces", add_interfaces},
      {"Addresses, best first", "addresses", add_addresses},
      {"Transports", "transports", add_transports},
      {"Device buffers", "devices", add_devices},
      {"Reduction kernels", "kernels", add_kernels},
      {"Settings (name, value, where from: default or environment)", "settings", add_settings},
      {"Job", "job", add_job}};
  for (const auto& part : kParts) {
    if (!all.contains(part.key)) continue;
    out += fmt::format("\n{}\n", part.title);
    part.add(all[part.key], &out);
  }
  return out;
}

}  // namespace unisono::uni_info
