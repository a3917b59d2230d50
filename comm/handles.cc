#include "comm/handles.h"

#include <atomic>
#include <cstring>

#include "base/config.h"
#include "base/net/event_loop.h"
#include "comm/device_link.h"

namespace unisono {
namespace {

thread_local std::string last_error;

std::string next_name() {
  static std::atomic<unsigned> made{0};
  return fmt::format("comm{}", made.fetch_add(1));
}

Status apply_environment(Settings* settings) {
  const Environment& env = environment();
  if (!env.problem.empty()) return error(Code::kInvalidArgument, "environment: {}", env.problem);
  if (env.timeout_ms > 0) settings->timeout_ms = env.timeout_ms;
  settings->algorithm = env.algorithm;
  settings->reproducible = env.reproducible == 1;
  settings->slice_bytes = env.slice_bytes;
  settings->plan_file = env.plan_file;
  const std::string list = env.transports.empty() ? default_transports() : env.transports;
  TRY_ASSIGN(settings->transports, parse_transports(list));
  return {};
}

// A caller compiled against an older, shorter struct: missing fields keep their defaults.
Result<uniConfig_t> read_config(const uniConfig_t* given) {
  uniConfig_t config = UNI_CONFIG_INITIALIZER;
  size_t size = 0;
  std::memcpy(&size, &given->size, sizeof size);
  constexpr size_t kLeast = offsetof(uniConfig_t, transports);
  if (size < kLeast || given->magic != UNI_CONFIG_MAGIC) {
    return error(Code::kInvalidArgument, "config: was not made from UNI_CONFIG_INITIALIZER");
  }
  std::memcpy(&config, given, std::min(size, sizeof config));
  return config;
}

Status apply_config(const uniConfig_t* given, Settings* settings) {
  TRY_ASSIGN(const uniConfig_t config, read_config(given));
  if (config.timeout_ms == 0 || config.timeout_ms < UNI_TIMEOUT_DEFAULT) {
    return error(Code::kInvalidArgument, "config.timeout_ms: {} is not positive",
                 config.timeout_ms);
  }
  if (config.timeout_ms > 0) settings->timeout_ms = config.timeout_ms;
  if (config.transports != nullptr && config.transports[0] != 0) {
    TRY_ASSIGN(settings->transports, parse_transports(config.transports));
  }
  if (config.algorithm != nullptr) settings->algorithm = config.algorithm;
  if (config.reproducible != 0 && config.reproducible != 1) {
    return error(Code::kInvalidArgument, "config.reproducible: {} is neither 0 nor 1",
                 config.reproducible);
  }
  if (config.reproducible == 1) settings->reproducible = true;
  if (config.device != nullptr) TRY(parse_device(config.device, settings));
  if (config.name != nullptr) settings->name = config.name;
  return {};
}

Status check_algorithm(const Settings& settings) {
  if (settings.algorithm.empty() || find_algorithm(settings.algorithm) != nullptr) return {};
  std::string known;
  for (const Algorithm& algorithm : algorithms()) {
    known += known.empty() ? algorithm.name : fmt::format(", {}", algorithm.name);
  }
  return error(Code::kInvalidArgument, "algorithm: '{}' is unknown (there are: {})",
               settings.algorithm, known);
}

}  // namespace

uniResult_t report_error(const Status& status) {
  last_error = status.message();
  return static_cast<uniResult_t>(status.code());
}

uniResult_t report_call(const Status& status, std::string_view name) {
  const std::string& text = status.message();
  // "all_reduce #2 (...)", "recv from ...": where it failed begins with what it was.
  const bool named =
      text.starts_with(name) && text.size() > name.size() && text[name.size()] == ' ';
  return report_error(named ? status : status.annotate(name));
}

// uniGetLastError's side of report_error.
const char* last_error_text() {
  return last_error.c_str();
}
const char* keep_error_text(const std::string& text) {
  last_error = text;
  return last_error.c_str();
}

Status check_comm(uniComm_t comm) {
  if (__builtin_expect(comm == nullptr, 0)) return error(Code::kInvalidArgument, "comm: is null");
  if (__builtin_expect(net::is_forked_child(), 0)) {
    return error(Code::kInvalidUsage, "comm: belongs to the parent of this forked process");
  }
  if (__builtin_expect(comm->finalized, 0)) {
    return error(Code::kInvalidUsage, "comm: is finalized; only uniCommDestroy is left");
  }
  return {};
}

Status not_in_forked_child() {
  if (!net::is_forked_child()) return {};
  return error(Code::kInvalidUsage, "a process forked from a user of this library cannot use it");
}

Result<Settings> make_settings(const uniConfig_t* config) {
  TRY(not_in_forked_child());
  Settings settings;
  settings.name = next_name();
  TRY(apply_environment(&settings));
  if (config != nullptr) TRY(apply_config(config, &settings));
  TRY(check_algorithm(settings));
  return settings;
}

Result<Settings> child_settings(const Communicator& parent, const uniConfig_t* config) {
  if (config != nullptr) return make_settings(config);
  Settings settings = parent.settings();
  if (parent.device() != nullptr) settings.device_index = parent.device()->device();
  settings.name = next_name();
  settings.timeout_ms = parent.timeout_ms();
  return settings;
}

}  // namespace unisono
