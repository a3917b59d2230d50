#include "tools/uni_info/gather.h"

#include <fmt/format.h>

#include "base/config.h"
#include "base/net/socket.h"
#include "comm/reduce/kernels.h"
#include "unisono/unisono.h"

namespace unisono::uni_info {
namespace {

std::string version_text(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

Json describe_library() {
  int version = 0;
  if (uniGetVersion(&version) != uniSuccess) return {{"problem", uniGetLastError(nullptr)}};
  return {{"version", version_text(version)}, {"header_version", version_text(UNI_VERSION_CODE)}};
}

Json describe_transports() {
  Json transports = Json::array();
  uniTransportInfo_t info{};
  info.size = sizeof(info);
  for (int index = 0; uniTransportQuery(index, &info) == uniSuccess; ++index) {
    transports.push_back(
        {{"name", info.name}, {"available", info.available != 0}, {"detail", info.detail}});
  }
  return transports;
}

// What UNISONO_INTERFACES leaves of the machine's addresses.
Json describe_addresses(const std::string& filter) {
  const auto addresses = net::local_addresses(filter);
  if (!addresses.ok()) return {{"problem", addresses.status().message()}};
  Json result = Json::array();
  for (const net::Address& address : *addresses) {
    std::string text = address.text();  // with port 0, which says nothing here
    text.resize(text.rfind(':'));
    result.push_back(text);
  }
  return result;
}

Json describe_kernels() {
  Json targets = Json::array();
  for (const char* target : kernel_targets()) targets.push_back(target);
  return {{"in_use", kernel_target()}, {"available", targets}};
}

}  // namespace

Json gather() {
  Json all;
  all["library"] = describe_library();
  all["machine"] = describe_machine();
  all["addresses"] = describe_addresses(read_environment().interfaces);
  all["transports"] = describe_transports();
  all["kernels"] = describe_kernels();
  all["settings"] = describe_settings();
  return all;
}

}  // namespace unisono::uni_info
