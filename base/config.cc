#include "base/config.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string>

#include "base/log.h"

namespace unisono {
namespace {

// getenv that takes an empty variable for an unset one, as shells make it hard to tell them apart.
const char* find(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

class Reader {
 public:
  explicit Reader(Environment& environment) : environment_(environment) {}

  void text(const char* name, std::string& target) const {
    if (const char* value = find(name)) target = value;
  }

  template <class Integer>
  void number(const char* name, Integer& target, int64_t least, int64_t most) {
    const char* value = find(name);
    if (value == nullptr) return;
    const std::string_view word(value);
    int64_t parsed = 0;
    const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), parsed);
    if (code != std::errc() || end != word.data() + word.size()) {
      complain("{}: '{}' is not a number", name, word);
    } else if (parsed < least || parsed > most) {
      complain("{}: {} is not in {}..{}", name, parsed, least, most);
    } else {
      target = static_cast<Integer>(parsed);
    }
  }

  // As number() from 1 on, or -1 for the default.
  template <class Integer>
  void positive(const char* name, Integer& target, int64_t most) {
    Integer parsed = -1;
    number(name, parsed, -1, most);
    if (parsed == 0) complain("{}: 0 is not positive, nor -1 for the default", name);
    if (parsed > 0) target = parsed;
  }

  // The index of the variable's value in `words`; `target` is left alone when unset or unknown.
  void word(const char* name, std::initializer_list<const char*> words, int& target) {
    const char* value = find(name);
    if (value == nullptr) return;
    int index = 0;
    std::string known;
    for (const char* candidate : words) {
      if (std::string_view(value) == candidate) {
        target = index;
        return;
      }
      known += known.empty() ? "" : ", ";
      known += candidate;
      ++index;
    }
    complain("{}: '{}' is not one of {}", name, value, known);
  }

 private:
  template <class... Args>
  void complain(fmt::format_string<Args...> format, Args&&... args) {
    if (!environment_.problem.empty()) return;
    environment_.problem = fmt::format(format, std::forward<Args>(args)...);
  }

  Environment& environment_;
};

// The variables by which one launcher tells a process its place. All come from one launcher: a rank
// of one and a size of another would not belong together.
struct Launcher {
  const char *name, *rank, *size, *local_rank, *local_size;
};
constexpr Launcher kLaunchers[] = {
    {"env", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
    {"kubernetes", "JOB_COMPLETION_INDEX", "WORLD_SIZE", nullptr, nullptr},
};

void read_settings(Reader& reader, Environment& env) {
  int level = -1;
  reader.word("UNISONO_LOG_LEVEL", {"error", "warn", "info", "debug", "trace"}, level);
  if (level >= 0) reader.text("UNISONO_LOG_LEVEL", env.log_level);
  reader.text("UNISONO_LOG_FILE", env.log_file);
  reader.text("UNISONO_TRANSPORTS", env.transports);
  reader.text("UNISONO_ALGORITHM", env.algorithm);
  reader.text("UNISONO_PLAN_FILE", env.plan_file);
  reader.text("UNISONO_INTERFACES", env.interfaces);
  reader.text("UNISONO_HOSTID", env.host_id);
  reader.text("UNISONO_JOB_SECRET", env.job_secret);
  reader.text("UNISONO_JOB_SECRET_FILE", env.job_secret_file);
  int descriptor = -1;
  reader.number("UNISONO_JOB_SECRET_FD", descriptor, 0, INT32_MAX);
  if (descriptor >= 0) env.job_secret_fd = std::to_string(descriptor);
  reader.text("UNISONO_MEETING", env.meeting);
  reader.positive("UNISONO_TIMEOUT_MS", env.timeout_ms, INT64_MAX / 1'000'000);
  reader.number("UNISONO_SLICE_BYTES", env.slice_bytes, 0, int64_t{1} << 40);
  reader.word("UNISONO_REPRODUCIBLE", {"0", "1"}, env.reproducible);
  reader.word("UNISONO_KERNELS", {"scalar", "sse4", "avx2", "avx512", "neon"}, env.kernel_target);
  if (env.kernel_target >= 0) reader.text("UNISONO_KERNELS", env.kernels);
  reader.text("UNISONO_NCCL_LIB", env.nccl_library);
  reader.text("UNISONO_CUDART_LIB", env.cudart_library);
}

void read_launcher(Reader& reader, Environment& env) {
  for (const Launcher& launcher : kLaunchers) {
    if (find(launcher.rank) == nullptr) continue;
    env.launcher = launcher.name;
    reader.number(launcher.rank, env.rank, 0, INT32_MAX);
    reader.number(launcher.size, env.world_size, 1, INT32_MAX);
    if (launcher.local_rank) reader.number(launcher.local_rank, env.local_rank, 0, INT32_MAX);
    if (launcher.local_size) reader.number(launcher.local_size, env.local_world_size, 1, INT32_MAX);
    break;
  }
  reader.text("MASTER_ADDR", env.master_addr);
  reader.number("MASTER_PORT", env.master_port, 0, 65535);
  reader.text("TORCHELASTIC_RUN_ID", env.run_id);
  reader.number("TORCHELASTIC_RESTART_COUNT", env.restart_count, 0, INT32_MAX);
  const char* agent = find("TORCHELASTIC_USE_AGENT_STORE");
  env.use_agent_store = agent != nullptr && std::string_view(agent) == "True";
  if (env.launcher == "env") {
    if (!env.meeting.empty()) {
      env.launcher = "uni-run";
    } else if (!env.run_id.empty() || env.use_agent_store) {
      env.launcher = "torchrun";
    }
  }
}

void read_meeting_ways(Reader& reader, Environment& env) {
  reader.number("PMI_FD", env.pmi_fd, 0, INT32_MAX);
  env.pmix = find("PMIX_RANK") != nullptr;
  // A step may have fewer nodes than its job.
  reader.text("SLURM_JOB_NODELIST", env.slurm_nodes);
  reader.text("SLURM_STEP_NODELIST", env.slurm_nodes);
}

void read_job_id(Reader& reader, Environment& env) {
  // Open MPI 4 names the job by the first, Open MPI 5 by the second.
  for (const char* name : {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "PMI_JOBID"}) {
    reader.text(name, env.job_id);
    if (!env.job_id.empty()) return;
  }
  if (const char* job = find("SLURM_JOB_ID")) {
    const char* step = find("SLURM_STEP_ID");
    env.job_id = fmt::format("{}.{}", job, step == nullptr ? "" : step);
  }
}

}  // namespace

Environment read_environment() {
  Environment env;
  Reader reader(env);
  read_settings(reader, env);
  read_launcher(reader, env);
  read_meeting_ways(reader, env);
  read_job_id(reader, env);
  return env;
}

const Environment& environment() {
  // Leaked on purpose: threads may still log and read while the process exits.
  static const Environment* const kEnvironment = [] {
    auto* env = new Environment(read_environment());
    (void)set_log_level(env->log_level);
    return env;
  }();
  return *kEnvironment;
}

std::string foreign_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace unisono
