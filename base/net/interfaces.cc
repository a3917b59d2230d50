// Which of this machine's addresses are worth telling others, best first, and how a link goes.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/net/endpoint_address.h"
#include "base/net/interface_filter.h"
#include "base/net/socket.h"

namespace unisono::net {
namespace {

struct Found {
  std::string interface;
  Address address;
  bool is_loopback = false;
  int preference = 0;
};

bool same_host_part(const Address& a, const Address& b) {
  if (a.storage.ss_family != b.storage.ss_family) return false;
  if (a.storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(a.storage).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b.storage).sin_addr.s_addr;
  }
  return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(a.storage).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(b.storage).sin6_addr,
                     sizeof(in6_addr)) == 0;
}

Result<std::vector<Found>> all_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return system_error(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<Found> all;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_RUNNING) == 0) continue;
    Found found;
    found.interface = one->ifa_name;
    found.address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&found.address.storage, one->ifa_addr, found.address.length);
    found.is_loopback = (one->ifa_flags & IFF_LOOPBACK) != 0;
    all.push_back(std::move(found));
  }
  return all;
}

// The address by which this machine speaks to the wide world; nothing is sent. Empty (length 0)
// where there is no default route.
Address default_source(const char* documentation_address) {
  auto remote = parse_address(documentation_address, 9);
  if (!remote.ok()) return {};
  const Fd fd(::socket(remote->storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&remote->storage),
                               remote->length) != 0) {
    return {};
  }
  auto local = bound_address(fd.get());
  return local.ok() ? *local : Address{};
}

bool has_entry(const std::string& interface, const char* entry) {
  return ::access(fmt::format("/sys/class/net/{}/{}", interface, entry).c_str(), F_OK) == 0;
}

// Others can be told few addresses (an id holds three), and a machine may have many bridges of
// containers. Lower is better.
void set_preferences(std::vector<Found>* all) {
  const Address v4 = default_source("192.0.2.1"), v6 = default_source("2001:db8::1");
  for (Found& one : *all) {
    if (same_host_part(one.address, v4) || same_host_part(one.address, v6)) {
      one.preference = 0;
    } else if (has_entry(one.interface, "device")) {
      one.preference = 1;  // hardware
    } else {
      one.preference = has_entry(one.interface, "bridge") ? 3 : 2;
    }
  }
}

std::string host_part(const Address& address) {
  std::string text = address.text();
  text.resize(text.rfind(':'));
  return text;
}

Status no_match(const std::string& filter, const std::vector<Found>& all) {
  std::vector<std::string> names;
  for (const Found& one : all) {
    if (std::find(names.begin(), names.end(), one.interface) == names.end()) {
      names.push_back(one.interface);
    }
  }
  std::string choices;
  for (const std::string& name : names) {
    std::string addresses;
    for (const Found& one : all) {
      if (one.interface != name) continue;
      addresses += (addresses.empty() ? "" : " ") + host_part(one.address);
    }
    choices += fmt::format("{}{} ({})", choices.empty() ? "" : ", ", name, addresses);
  }
  return error(Code::kInvalidArgument,
               "UNISONO_INTERFACES: no interface with an address matches '{}'; there {}", filter,
               choices.empty() ? "is none at all" : "are " + choices);
}

}  // namespace

Result<std::vector<Address>> local_addresses(const std::string& filter) {
  const InterfaceFilter interfaces(filter);
  TRY_ASSIGN(std::vector<Found> all, all_addresses());
  set_preferences(&all);
  std::stable_sort(all.begin(), all.end(),
                   [](const Found& a, const Found& b) { return a.preference < b.preference; });
  std::vector<Address> usable, loopback;
  bool loopback_wanted = false;
  for (const Found& one : all) {
    if (!interfaces.allows(one.interface)) continue;
    (one.is_loopback ? loopback : usable).push_back(one.address);
    loopback_wanted |= one.is_loopback && interfaces.asks_for(one.interface);
  }
  if (usable.empty() || loopback_wanted) {
    usable.insert(usable.end(), loopback.begin(), loopback.end());
  }
  if (usable.empty() && !filter.empty()) return no_match(filter, all);
  return usable;
}

std::string describe_local_end(int fd) {
  const auto local = bound_address(fd);
  if (!local.ok() || local->storage.ss_family == AF_UNIX) return "here";
  const auto all = all_addresses();
  if (all.ok()) {
    for (const Found& one : *all) {
      if (same_host_part(one.address, *local)) {
        return fmt::format("{} ({})", host_part(*local), one.interface);
      }
    }
  }
  return host_part(*local);
}

}  // namespace unisono::net
