// The machine's network interfaces, and which of them the library would use.
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>

#include "base/net/interface_filter.h"
#include "base/net/socket.h"
#include "tools/uni_info/gather.h"

namespace unisono::uni_info {
namespace {

struct Interface {
  unsigned flags = 0;
  std::vector<std::string> addresses;
};

std::string sys_path(const std::string& name, const char* entry) {
  return fmt::format("/sys/class/net/{}/{}", name, entry);
}

// Null where the kernel has no such number (speed of a bridge or of a link that is down).
Json sys_number(const std::string& name, const char* entry) {
  std::ifstream file(sys_path(name, entry));
  int64_t value = -1;
  return file >> value && value >= 0 ? Json(value) : Json(nullptr);
}

bool sys_has(const std::string& name, const char* entry) {
  return access(sys_path(name, entry).c_str(), F_OK) == 0;
}

const char* kind_of(const std::string& name, unsigned flags) {
  if ((flags & IFF_LOOPBACK) != 0) return "loopback";
  if (sys_has(name, "device")) return "hardware";
  return sys_has(name, "bridge") ? "bridge" : "virtual";
}

std::string host_part(const net::Address& address) {
  std::string text = address.text();  // with port 0, which says nothing here
  text.resize(text.rfind(':'));
  return text;
}

// Those that are down or have no address too; in the order of the system.
std::vector<std::pair<std::string, Interface>> all_interfaces() {
  std::vector<std::pair<std::string, Interface>> all;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return all;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    auto found = std::find_if(all.begin(), all.end(),
                              [&](const auto& known) { return known.first == one->ifa_name; });
    if (found == all.end()) found = all.insert(all.end(), {one->ifa_name, {one->ifa_flags, {}}});
    const int family = one->ifa_addr == nullptr ? AF_UNSPEC : one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    net::Address address;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, one->ifa_addr, address.length);
    found->second.addresses.push_back(host_part(address));
  }
  return all;
}

// Why the library leaves out an interface, as UNISONO_INTERFACES is.
std::string why_not(const std::string& name, const Interface& interface,
                    const std::string& filter) {
  if ((interface.flags & IFF_UP) == 0) return "it is down";
  if ((interface.flags & IFF_RUNNING) == 0) return "it has no carrier";
  if (interface.addresses.empty()) return "it has no address";
  if (const net::InterfaceFilter interfaces(filter); !interfaces.allows(name)) {
    const std::string* pattern = interfaces.matching(name);
    if (pattern == nullptr) return fmt::format("UNISONO_INTERFACES={} does not name it", filter);
    return fmt::format("UNISONO_INTERFACES={}: '{}' matches it", filter, *pattern);
  }
  return "loopback: used where there is nothing else, or where UNISONO_INTERFACES names it";
}

}  // namespace

Json describe_addresses(const std::string& filter) {
  const auto addresses = net::local_addresses(filter);
  if (!addresses.ok()) return {{"problem", addresses.status().message()}};
  Json result = Json::array();
  for (const net::Address& address : *addresses) result.push_back(host_part(address));
  return result;
}

Json describe_interfaces(const std::string& filter) {
  const Json used = describe_addresses(filter);
  Json result = Json::array();
  for (const auto& [name, interface] : all_interfaces()) {
    Json row = {{"name", name},
                {"kind", kind_of(name, interface.flags)},
                {"addresses", interface.addresses},
                {"mtu", sys_number(name, "mtu")},
                {"speed_mbit", sys_number(name, "speed")},
                {"memory_node", sys_number(name, "device/numa_node")}};
    const bool is_used =
        used.is_array() &&
        std::any_of(interface.addresses.begin(), interface.addresses.end(), [&](const auto& a) {
          return std::find(used.begin(), used.end(), a) != used.end();
        });
    row["used"] = is_used;
    if (!is_used) row["why_not"] = why_not(name, interface, filter);
    result.push_back(std::move(row));
  }
  return result;
}

}  // namespace unisono::uni_info
