// The environment, read once into one typed struct. Every variable that the library reads is a row
// here, in docs/environment.md and in tests/base/config_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace unisono {

struct Environment {
  // Settings of ours.
  std::string log_level = "warn";  // UNISONO_LOG_LEVEL: error warn info debug trace
  std::string log_file;            // UNISONO_LOG_FILE: default standard error
  std::string transports;          // UNISONO_TRANSPORTS: as uniConfig_t.transports
  std::string algorithm;           // UNISONO_ALGORITHM: as uniConfig_t.algorithm
  std::string plan_file;           // UNISONO_PLAN_FILE: a plan as text (docs/plan-format.md)
  std::string interfaces;  // UNISONO_INTERFACES: "eth0,ib*" only these, "^docker*" all but these
  std::string host_id;     // UNISONO_HOSTID: overrides the host's identity
  std::string job_secret;  // UNISONO_JOB_SECRET
  std::string job_secret_file;  // UNISONO_JOB_SECRET_FILE: mode 0600
  std::string job_secret_fd;    // UNISONO_JOB_SECRET_FD: inherited descriptor (uni-run)
  std::string
      meeting;  // UNISONO_MEETING: uni-run's meeting point: "unix:NAME" or "tcp://host:port"
  int64_t timeout_ms = -1;     // UNISONO_TIMEOUT_MS: -1 is the default of 30 minutes
  int64_t slice_bytes = 0;     // UNISONO_SLICE_BYTES: 0 lets the planner decide
  int reproducible = -1;       // UNISONO_REPRODUCIBLE: 0 or 1; -1 is unset
  int kernel_target = -1;      // UNISONO_KERNELS: scalar sse4 avx2 avx512 neon; -1 is the best one
  std::string kernels;         // the word of UNISONO_KERNELS
  std::string nccl_library;    // UNISONO_NCCL_LIB: the file of NCCL; default libnccl.so.2
  std::string cudart_library;  // UNISONO_CUDART_LIB: of the CUDA runtime; default libcudart.so.*
  // Settings of launchers; -1 or empty is unset. All four come from one launcher, the first whose
  // rank is set.
  int rank = -1;        // RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID,
                        // JOB_COMPLETION_INDEX
  int world_size = -1;  // WORLD_SIZE, OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_NTASKS
  int local_rank = -1;  // LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID, SLURM_LOCALID
  int local_world_size = -1;  // LOCAL_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_SIZE, MPI_LOCALNRANKS
  std::string launcher;  // "uni-run", "torchrun", "openmpi", "pmi", "slurm", "kubernetes", "env",
                         // or empty
  std::string master_addr;       // MASTER_ADDR
  int master_port = -1;          // MASTER_PORT
  bool use_agent_store = false;  // TORCHELASTIC_USE_AGENT_STORE == "True"
  std::string run_id;            // TORCHELASTIC_RUN_ID
  int restart_count = 0;         // TORCHELASTIC_RESTART_COUNT
  std::string job_id;            // OMPI_MCA_ess_base_jobid, PMIX_NAMESPACE, PMI_JOBID or
                                 // SLURM_JOB_ID.SLURM_STEP_ID: names the job
  // Ways to meet of ranks on several hosts.
  int pmi_fd = -1;          // PMI_FD: MPICH's process manager listens at this descriptor
  bool pmix = false;        // PMIX_RANK is set: a PMIx server started this rank
  std::string slurm_nodes;  // SLURM_STEP_NODELIST or SLURM_JOB_NODELIST: "node[1-3,7]"
  // The first malformed variable, in words ("UNISONO_TIMEOUT_MS: 'x' is not a number"); empty when
  // all is well. Communicator creation refuses to go on with one.
  std::string problem;
};

// Parses the process's current environment. Pure but for getenv.
Environment read_environment();
// Read at first use, never again; applies the log level.
const Environment& environment();
// A variable by which the user tells another library something ("UCX_TLS"), for code that gives
// that library settings and must not override the user's. Empty: unset.
std::string foreign_variable(const char* name);

}  // namespace unisono
