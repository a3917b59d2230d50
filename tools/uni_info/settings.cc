// The library's settings as it would read them now. They come from defaults and the environment; it
// reads no configuration file, and what a program sets in uniConfig_t is seen by that program
// alone.
#include <unistd.h>

#include <cstring>

#include "base/config.h"
#include "tools/uni_info/gather.h"

namespace unisono::uni_info {
namespace {

// Whether this process's environment has a value for `name`. An empty one counts as unset, as in
// base/config.cc.
bool is_set(std::string_view name) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.size() > name.size() + 1 && text.substr(0, name.size()) == name &&
        text[name.size()] == '=') {
      return true;
    }
  }
  return false;
}

// The first of several variables that is set, as the library chooses; empty if none is.
std::string first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (is_set(name)) return name;
  }
  return "";
}

class Settings {
 public:
  // `value` as the library has it: null for "not set, no default".
  void add(const char* name, Json value, std::initializer_list<const char*> names) {
    const std::string source = first_set(names);
    rows_.push_back({{"name", name},
                     {"value", std::move(value)},
                     {"from", source.empty() ? "default" : source},
                     {"source", source.empty() ? "default" : "environment"}});
  }
  void add(const char* variable, Json value) { add(variable, std::move(value), {variable}); }
  Json take() { return std::move(rows_); }

 private:
  Json rows_ = Json::array();
};

Json text(const std::string& value, const char* otherwise) {
  return value.empty() ? Json(otherwise) : Json(value);
}
Json number(int64_t value) {
  return value < 0 ? Json(nullptr) : Json(value);
}
// A secret is never shown.
Json hidden(const std::string& value) {
  return value.empty() ? Json(nullptr) : Json("(set)");
}

void add_own(const Environment& env, Settings* settings) {
  settings->add("UNISONO_LOG_LEVEL", env.log_level);
  settings->add("UNISONO_LOG_FILE", text(env.log_file, "standard error"));
  settings->add("UNISONO_TRANSPORTS", text(env.transports, "all"));
  settings->add("UNISONO_ALGORITHM", text(env.algorithm, "the planner's choice"));
  settings->add("UNISONO_PLAN_FILE", text(env.plan_file, "none"));
  settings->add("UNISONO_INTERFACES", text(env.interfaces, "all"));
  settings->add("UNISONO_HOSTID", text(env.host_id, "the machine's"));
  settings->add("UNISONO_JOB_SECRET", hidden(env.job_secret));
  settings->add("UNISONO_JOB_SECRET_FILE", env.job_secret_file);
  settings->add("UNISONO_JOB_SECRET_FD", env.job_secret_fd);
  settings->add("UNISONO_MEETING", env.meeting);
  settings->add("UNISONO_TIMEOUT_MS",
                env.timeout_ms < 0 ? Json("30 minutes") : Json(env.timeout_ms));
  settings->add("UNISONO_SLICE_BYTES",
                env.slice_bytes == 0 ? Json("the planner's choice") : Json(env.slice_bytes));
  settings->add("UNISONO_REPRODUCIBLE", env.reproducible < 0 ? Json(0) : Json(env.reproducible));
  settings->add("UNISONO_KERNELS", text(env.kernels, "the best"));
  settings->add("UNISONO_NCCL_LIB", text(env.nccl_library, "libnccl.so.2"));
  settings->add("UNISONO_CUDART_LIB", text(env.cudart_library, "the newest"));
}

void add_launcher(const Environment& env, Settings* settings) {
  settings->add("launcher", text(env.launcher, "none"), {});
  settings->add("rank", number(env.rank),
                {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"});
  settings->add("ranks", number(env.world_size),
                {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
  settings->add("local rank", number(env.local_rank),
                {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"});
  settings->add("local ranks", number(env.local_world_size),
                {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  settings->add("MASTER_ADDR", env.master_addr);
  settings->add("MASTER_PORT", number(env.master_port));
  settings->add("TORCHELASTIC_USE_AGENT_STORE", env.use_agent_store);
  settings->add("TORCHELASTIC_RUN_ID", env.run_id);
  settings->add("TORCHELASTIC_RESTART_COUNT", env.restart_count);
  settings->add("job", env.job_id,
                {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID"});
}

}  // namespace

Json describe_settings() {
  const Environment env = read_environment();
  Settings settings;
  add_own(env, &settings);
  add_launcher(env, &settings);
  Json result;
  if (!env.problem.empty()) result["problem"] = env.problem;
  result["variables"] = settings.take();
  return result;
}

}  // namespace unisono::uni_info
