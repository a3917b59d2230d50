#include "transports/ucx/context.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config.h"

namespace unisono::ucx {
namespace {

// UCX's names of what moves bytes through shared memory, and of sets that hold them.
bool names_shared_memory(std::string_view tls) {
  if (tls.empty() || tls.find('^') != std::string_view::npos) return true;
  constexpr std::array kNames = {"all", "shm", "sm", "mm", "posix", "sysv", "xpmem"};
  for (size_t at = 0; at <= tls.size();) {
    const size_t end = std::min(tls.find(',', at), tls.size());
    const std::string_view name = tls.substr(at, end - at);
    if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return true;
    at = end + 1;
  }
  return false;
}

struct Setting {
  const char* name;  // without "UCX_"
  std::string value;
};

std::vector<Setting> settings_of(const Options& options) {
  std::vector<Setting> settings;
  if (!options.tls.empty()) settings.push_back({"TLS", options.tls});
  if (!options.devices.empty()) settings.push_back({"NET_DEVICES", options.devices});
  // What the user has set in the environment stays.
  const auto prefer = [&](const char* variable, const char* value) {
    if (foreign_variable(variable).empty()) settings.push_back({variable + 4, value});
  };
  prefer("UCX_KEEPALIVE_INTERVAL", "2s");
  const std::string tls = options.tls.empty() ? foreign_variable("UCX_TLS") : options.tls;
  // Without it UCX's shared memory refuses endpoints that report a dead peer.
  if (names_shared_memory(tls)) prefer("UCX_MM_ERROR_HANDLING", "y");
  return settings;
}

Result<ucp_context_h> make_context(const Options& options) {
  const Library& ucx = library();
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = ucx.ucp_config_read(nullptr, nullptr, &config);
      status != UCS_OK) {
    return ucx_error(Code::kSystemError, status, "ucx: reading its configuration");
  }
  for (const Setting& setting : settings_of(options)) {
    const ucs_status_t status = ucx.ucp_config_modify(config, setting.name, setting.value.c_str());
    if (status == UCS_OK) continue;
    ucx.ucp_config_release(config);
    return ucx_error(Code::kInvalidArgument, status,
                     fmt::format("ucx: {}={}", setting.name, setting.value));
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;  // ranks may be threads
  ucp_context_h context = nullptr;
  const ucs_status_t status =
      ucx.ucp_init_version(kLeastMajor, kLeastMinor, &params, config, &context);
  ucx.ucp_config_release(config);
  if (status != UCS_OK) {
    return ucx_error(
        Code::kSystemError, status,
        fmt::format("ucx: no context{}{}", options.tls.empty() ? "" : " with tls=", options.tls));
  }
  return context;
}

}  // namespace

Result<Options> parse_options(const std::string& text) {
  Options options;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = std::min(item.find('='), item.size());
    const std::string name = item.substr(0, equals);
    std::string value = equals < item.size() ? item.substr(equals + 1) : "";
    std::replace(value.begin(), value.end(), '+', ',');
    if (value.empty() || (name != "tls" && name != "devices")) {
      return error(Code::kInvalidArgument, "ucx: unknown option '{}' (there are: tls=, devices=)",
                   item);
    }
    (name == "tls" ? options.tls : options.devices) = value;
  }
  return options;
}

Result<ucp_context_h> shared_context(const Options& options) {
  struct Contexts {
    std::mutex mutex;
    pid_t owner = getpid();
    std::map<std::pair<std::string, std::string>, ucp_context_h> made;
  };
  static Contexts& contexts = *new Contexts;  // UCX's own destructors may run before ours
  const std::lock_guard lock(contexts.mutex);
  if (contexts.owner != getpid()) {
    return error(Code::kInvalidUsage,
                 "ucx: used by the parent before fork(): a child must be started by exec, or "
                 "forked before the parent's first communicator over ucx");
  }
  ucp_context_h& context = contexts.made[{options.tls, options.devices}];
  if (context == nullptr) {
    TRY_ASSIGN(context, make_context(options));
  }
  return context;
}

Result<Worker> Worker::create(ucp_context_h context) {
  const Library& ucx = library();
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // the turn passes from thread to thread
  ucp_worker_h handle = nullptr;
  if (const ucs_status_t status = ucx.ucp_worker_create(context, &params, &handle);
      status != UCS_OK) {
    return ucx_error(Code::kSystemError, status, "ucx: no worker");
  }
  Worker worker(handle, "", -1);
  if (const ucs_status_t status = ucx.ucp_worker_get_efd(handle, &worker.efd_); status != UCS_OK) {
    return ucx_error(Code::kSystemError, status, "ucx: no descriptor to sleep on");
  }
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  if (const ucs_status_t status = ucx.ucp_worker_get_address(handle, &address, &bytes);
      status != UCS_OK) {
    return ucx_error(Code::kSystemError, status, "ucx: the worker has no address");
  }
  worker.address_.assign(reinterpret_cast<const char*>(address), bytes);
  ucx.ucp_worker_release_address(handle, address);
  return worker;
}

Worker::Worker(Worker&& other) noexcept
    : worker_(std::exchange(other.worker_, nullptr)),
      address_(std::move(other.address_)),
      efd_(std::exchange(other.efd_, -1)) {}

void Worker::destroy() {
  if (worker_ != nullptr) library().ucp_worker_destroy(std::exchange(worker_, nullptr));
}

std::string rdma_devices() {
  std::string names;
  std::error_code ignored;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", ignored)) {
    bool up = false;
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", ignored)) {
      std::string state;
      std::getline(std::ifstream(port.path() / "state"), state);
      up = up || state.find("ACTIVE") != std::string::npos;
    }
    if (up) names += (names.empty() ? "" : " ") + device.path().filename().string();
  }
  return names;
}

}  // namespace unisono::ucx
