#include "tools/uni_info/gather.h"

#include <fmt/format.h>

#include "base/config.h"
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
  const std::string filter = read_environment().interfaces;
  all["interfaces"] = describe_interfaces(filter);
  all["addresses"] = describe_addresses(filter);
  all["transports"] = describe_transports();
  all["devices"] = describe_devices();
  all["kernels"] = describe_kernels();
  all["settings"] = describe_settings();
  return all;
}

}  // namespace unisono::uni_info
