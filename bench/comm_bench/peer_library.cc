#include "bench/comm_bench/peer_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

namespace bench {
namespace {

struct PeerRow {
  const char* name;
  const char* object;
  const char* mpirun;  // null: no launcher
  std::vector<std::string> flags;
};

// The set-ups that were the fastest of each library here; oversubscription is allowed, pinning is
// ours.
const std::vector<PeerRow>& peer_rows() {
  static const std::vector<std::string> open = {"--allow-run-as-root", "--oversubscribe",
                                                "--bind-to", "none"};
  const auto with = [](std::vector<std::string> more) {
    std::vector<std::string> flags = open;
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  static const std::vector<PeerRow> rows = {
      {"openmpi", "openmpi", "mpirun.openmpi",
       with({"--mca", "pml", "ob1", "--mca", "btl", "vader,self"})},
      {"openmpi-ucx", "openmpi", "mpirun.openmpi",
       with({"--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices",
             "any"})},
      {"openmpi-tcp", "openmpi", "mpirun.openmpi",
       with({"--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include",
             "lo"})},
      {"mpich", "mpich", "mpirun.mpich", {"-bind-to", "none"}},
      {"gloo", "gloo", nullptr, {}},
  };
  return rows;
}

std::filesystem::path peer_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib" /
         "unisono-peers";
}

std::optional<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos)
    return access(name.c_str(), X_OK) == 0 ? std::optional(name) : std::nullopt;
  const char* path = std::getenv("PATH");
  std::string rest = path == nullptr ? "/usr/bin:/bin" : path;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string candidate = rest.substr(0, colon) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  return std::nullopt;
}

PeerType peer_type(uniDataType_t type, bool* known) {
  *known = true;
  switch (type) {
    case uniInt32:
      return PEER_INT32;
    case uniInt64:
      return PEER_INT64;
    case uniFloat32:
      return PEER_FLOAT32;
    case uniFloat64:
      return PEER_FLOAT64;
    case uniUint8:
      return PEER_UINT8;
    default:
      *known = false;
      return PEER_UINT8;
  }
}

PeerWork peer_work(Work work, bool* known) {
  switch (work) {
    case Work::kAllReduce:
      return PEER_ALL_REDUCE;
    case Work::kReduce:
      return PEER_REDUCE;
    case Work::kBroadcast:
      return PEER_BROADCAST;
    case Work::kAllGather:
      return PEER_ALL_GATHER;
    case Work::kReduceScatter:
      return PEER_REDUCE_SCATTER;
    case Work::kGather:
      return PEER_GATHER;
    case Work::kScatter:
      return PEER_SCATTER;
    case Work::kAllToAll:
      return PEER_ALL_TO_ALL;
    case Work::kBarrier:
      return PEER_BARRIER;
    default:
      *known = false;
      return PEER_BARRIER;
  }
}

}  // namespace

std::vector<std::string> known_peers() {
  std::vector<std::string> names;
  for (const PeerRow& row : peer_rows()) names.emplace_back(row.name);
  return names;
}

PeerPlan plan_peer(const std::string& name, int ranks) {
  PeerPlan plan;
  plan.name = name;
  PeerRow row{name.c_str(), name.c_str(), nullptr, {}};
  bool found = false;
  for (const PeerRow& known : peer_rows()) {
    if (name == known.name) row = known, found = true;
  }
  plan.object = (peer_folder() / (std::string(row.object) + ".so")).string();
  std::string launcher = row.mpirun == nullptr ? "" : row.mpirun;
  if (!found) {  // one that bench/peers/setup --mpicc has built
    std::ifstream file(peer_folder() / (name + ".mpirun"));
    std::getline(file, launcher);
  }
  if (!std::filesystem::exists(plan.object)) {
    plan.missing = found ? "its plugin is not built: run bench/peers/setup, then tools/build"
                         : "unknown peer, and no plugin of that name (bench/peers/README.md)";
    return plan;
  }
  if (launcher.empty()) return plan;
  const std::optional<std::string> program = find_program(launcher);
  if (!program) {
    plan.missing = launcher + " is not installed";
    return plan;
  }
  plan.launcher = {*program, "-n", std::to_string(ranks)};
  plan.launcher.insert(plan.launcher.end(), row.flags.begin(), row.flags.end());
  return plan;
}

PeerLibrary::PeerLibrary(const std::string& object, const std::string& name, int* rank, int* ranks,
                         const std::string& folder)
    : name_(name) {
  // Global: some MPIs load parts of themselves that expect the library's symbols there.
  void* handle = dlopen(object.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* symbol = handle == nullptr ? nullptr : dlsym(handle, "comm_bench_peer");
  if (symbol == nullptr) {
    fprintf(stderr, "comm-bench: --versus %s: %s\n", name.c_str(), dlerror());
    _exit(3);
  }
  peer_ = reinterpret_cast<const Peer* (*)()>(symbol)();
  if (peer_->abi != PEER_ABI) {
    fprintf(stderr, "comm-bench: --versus %s: its plugin is of another version; build it again\n",
            name.c_str());
    _exit(3);
  }
  must(peer_->open(rank, ranks, folder.c_str()), "open");
}

PeerLibrary::~PeerLibrary() {
  peer_->close();
}

void PeerLibrary::must(int result, const char* what) const {
  if (result == 0) return;
  fprintf(stderr, "comm-bench: %s: %s: %s\n", name_.c_str(), what, peer_->error());
  fflush(nullptr);
  _exit(3);
}

void PeerLibrary::broadcast(void* data, size_t bytes) const {
  must(peer_->broadcast_bytes(data, bytes), "broadcast");
}

bool PeerLibrary::issue(const Options& options, const WorkBuffers::Case& c,
                        const WorkBuffers::Pointers& at) const {
  PeerCall call{};
  bool known = true, known_type = true;
  call.work = peer_work(options.work, &known);
  call.type = peer_type(c.type->type, &known_type);
  call.send = at.send;
  call.recv = at.recv;
  call.count = c.sizes.count;
  call.root = c.root;
  switch (c.op) {
    case uniSum:
      call.op = PEER_SUM;
      break;
    case uniProd:
      call.op = PEER_PROD;
      break;
    case uniMax:
      call.op = PEER_MAX;
      break;
    case uniMin:
      call.op = PEER_MIN;
      break;
    default:
      known = false;
  }
  if (!known || !known_type) return false;
  const int result = peer_->collective(&call);
  if (result == PEER_UNSUPPORTED) return false;
  must(result, options.work_name.c_str());
  return true;
}

}  // namespace bench
