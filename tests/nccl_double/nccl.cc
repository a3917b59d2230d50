// NCCL's side of the double: communicators, groups, and what of them is in progress when.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/nccl_double/state.h"

namespace unisono::nccl {
namespace nccl_double {
namespace {

struct Group {
  int depth = 0;
  NcclResult refused = kSuccess;
  std::vector<Task> tasks;
};
thread_local Group group;

NcclResult result_of(int code) {
  return static_cast<NcclResult>(code);
}

// Known, and through with what it had begun.
NcclResult check_comm(const Comm* comm, const char* call) {
  if (state().comms.count(const_cast<Comm*>(comm)) == 0) {
    violate(std::string(call) + " of a communicator that is none");
    return kInvalidArgument;
  }
  if (comm->lag > 0) violate(std::string(call) + " while in progress");
  return kSuccess;
}

void run(std::vector<Task> tasks, std::unique_lock<std::mutex>& lock) {
  State& s = state();
  Comm* const comm = tasks.front().comm;
  if (!comm->aborted) {
    for (Task& task : tasks) arrive(task);
    s.changed.wait(
        lock, [&] { return comm->aborted || std::all_of(tasks.begin(), tasks.end(), finished); });
    for (Task& task : tasks) {
      if (!finished(task)) withdraw(task);
    }
  }
  comm->running--;
}

// Puts what a group left on the streams, in order; those of one stream run together.
void launch(Comm& comm) {
  std::map<Stream*, std::vector<Task>> by_stream;
  for (Task& task : std::exchange(comm.pending, {})) {
    if (task.kind != Task::kSend && task.kind != Task::kRecv) {
      auto& slot = comm.clique->slots[comm.next_slot++];
      if (!slot) slot = std::make_shared<Slot>();
      task.slot = slot;
    }
    by_stream[task.stream].push_back(task);
  }
  for (auto& [stream, tasks] : by_stream) {
    comm.running++;
    push(stream,
         [tasks = std::move(tasks)](std::unique_lock<std::mutex>& lock) { run(tasks, lock); });
  }
}

NcclResult end_group() {
  std::vector<Task> tasks = std::exchange(group.tasks, {});
  const NcclResult refused = std::exchange(group.refused, kSuccess);
  if (refused != kSuccess) return refused;
  for (Task& task : tasks) {
    task.comm->pending.push_back(task);
    task.comm->lag = kLag;
  }
  return tasks.empty() ? kSuccess : kInProgress;
}

Comm* join(const std::shared_ptr<Clique>& clique, int ranks, int rank, int on) {
  auto* const comm = new Comm;
  comm->clique = clique;
  comm->rank = rank;
  comm->device = on;
  clique->ranks = ranks;
  for (const auto& [other, member] : clique->members) {
    if (other == rank || member->device == on) comm->failed = kInvalidUsage;  // as the real one
  }
  clique->members[rank] = comm;
  state().comms.insert(comm);
  state().changed.notify_all();
  return comm;
}

// The communicator that a split of all ranks makes for this one; null: for none.
Comm* make_child(Comm& comm) {
  const auto& wishes = comm.clique->splits[comm.split_number];
  const auto mine = wishes.at(comm.rank);
  if (mine.color < 0) return nullptr;
  int ranks = 0, rank = 0;
  for (const auto& [other, wish] : wishes) {
    if (wish.color != mine.color) continue;
    ranks++;
    rank += std::pair(wish.key, other) < std::pair(mine.key, comm.rank);
  }
  auto& clique = comm.clique->children[{comm.split_number, mine.color}];
  if (!clique) clique = std::make_shared<Clique>();
  return join(clique, ranks, rank, comm.device);
}

// A look at a communicator in progress: it goes on with looks alone, so that who does not look
// hangs.
NcclResult look(Comm& comm) {
  if (comm.failed != kSuccess) return comm.failed;
  const auto all = static_cast<size_t>(comm.clique->ranks);
  if (!comm.joined) {
    if (comm.clique->members.size() < all) return kInProgress;
    if (--comm.lag > 0) return kInProgress;
    comm.joined = true;
  } else if (comm.split_into != nullptr) {
    if (comm.clique->splits[comm.split_number].size() < all) return kInProgress;
    if (--comm.lag > 0) return kInProgress;
    *std::exchange(comm.split_into, nullptr) = make_child(comm);
  } else if (comm.lag > 0) {
    if (comm.finalizing && comm.running > 0) return kInProgress;
    if (--comm.lag > 0) return kInProgress;
    launch(comm);
  }
  return kSuccess;
}

void forget(Comm* comm) {
  State& s = state();
  comm->clique->members.erase(comm->rank);
  s.ops -= static_cast<int>(comm->ops.size());
  s.comms.erase(comm);
  std::erase_if(s.registrations, [&](const auto& entry) {  // they go with it
    if (entry.second != comm) return false;
    delete entry.first;
    return true;
  });
  delete comm;
}

NcclResult add(const char* call, Task task, Comm* comm, Stream* stream) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  NcclResult result = result_of(enter_locked(call));
  if (result == kSuccess) result = check_comm(comm, call);
  if (result == kSuccess && task.op > kAvg) {
    const auto found = comm->ops.find(task.op);
    if (found == comm->ops.end()) {
      violate(std::string(call) + " with an operation that is none");
      result = kInvalidArgument;
    } else {
      task.scalar = found->second;
    }
  }
  if (result != kSuccess) {
    if (group.depth > 0) group.refused = result;
    return result;
  }
  task.comm = comm;
  task.stream = stream_of(stream);
  if (task.stream->device != comm->device) violate(std::string(call) + ": of another device");
  group.tasks.push_back(task);
  return group.depth > 0 ? kSuccess : end_group();
}

}  // namespace
}  // namespace nccl_double

using namespace nccl_double;

#define ENTER(name)               \
  State& s = state();             \
  std::unique_lock lock(s.mutex); \
  if (const int code = enter_locked(#name); code != 0) return result_of(code);
#define ENTER_COMM(name) \
  ENTER(name)            \
  if (const NcclResult bad = check_comm(comm, #name); bad != kSuccess) return bad;

extern "C" {

NcclResult ncclGetVersion(int* version) {
  ENTER(ncclGetVersion)
  const char* const given = std::getenv("NCCL_DOUBLE_VERSION");
  *version = given == nullptr ? 22809 : std::atoi(given);
  return kSuccess;
}

NcclResult ncclGetUniqueId(UniqueId* id) {
  ENTER(ncclGetUniqueId)
  static uint64_t made = 0;
  std::memset(id->internal, 7, sizeof id->internal);
  const uint64_t number = ++made;
  std::memcpy(id->internal, &number, sizeof number);
  s.cliques[std::string(id->internal, sizeof id->internal)] = std::make_shared<Clique>();
  return kSuccess;
}

NcclResult ncclCommInitRankConfig(Comm** out, int ranks, UniqueId id, int rank, Config* config) {
  ENTER(ncclCommInitRankConfig)
  const auto found = s.cliques.find(std::string(id.internal, sizeof id.internal));
  if (found == s.cliques.end()) {
    violate("ncclCommInitRankConfig with an id that is none");
    return kInvalidArgument;
  }
  if (config->size != sizeof(Config) || config->magic != kConfigMagic || config->blocking != 0) {
    violate("ncclCommInitRankConfig: config");
  }
  if (rank < 0 || rank >= ranks) violate("ncclCommInitRankConfig: rank");
  *out = join(found->second, ranks, rank, current_device());
  return kInProgress;
}

NcclResult ncclCommSplit(Comm* comm, int color, int key, Comm** out, Config* config) {
  ENTER_COMM(ncclCommSplit)
  if (config->magic != kConfigMagic || config->blocking != 0) violate("ncclCommSplit: config");
  comm->split_number = comm->next_split++;
  comm->clique->splits[comm->split_number][comm->rank] = {color, key};
  comm->split_into = out;
  comm->lag = kLag;
  return kInProgress;
}

NcclResult ncclCommFinalize(Comm* comm) {
  ENTER_COMM(ncclCommFinalize)
  comm->finalizing = true;
  comm->lag = kLag;
  return kInProgress;
}

NcclResult ncclCommDestroy(Comm* comm) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const int code = enter_locked("ncclCommDestroy");  // what fails has destroyed it all the same
  if (const NcclResult bad = check_comm(comm, "ncclCommDestroy"); bad != kSuccess) return bad;
  if (!comm->finalizing) violate("ncclCommDestroy before ncclCommFinalize");
  if (comm->running > 0) violate("ncclCommDestroy while work runs");
  forget(comm);
  return result_of(code);
}

NcclResult ncclCommAbort(Comm* comm) {
  State& s = state();
  std::unique_lock lock(s.mutex);
  const int code = enter_locked("ncclCommAbort");
  if (s.comms.count(comm) == 0) {
    violate("ncclCommAbort of a communicator that is none");
    return kInvalidArgument;
  }
  comm->aborted = true;
  s.changed.notify_all();
  s.changed.wait(lock, [&] { return comm->running == 0; });
  forget(comm);
  return result_of(code);
}

NcclResult ncclCommGetAsyncError(Comm* comm, NcclResult* result) {
  ENTER(ncclCommGetAsyncError)
  if (s.comms.count(comm) == 0) {
    violate("ncclCommGetAsyncError of a communicator that is none");
    return kInvalidArgument;
  }
  *result = look(*comm);
  if (const int code = enter_locked("async"); code != 0) *result = comm->failed = result_of(code);
  return kSuccess;
}

const char* ncclGetErrorString(NcclResult result) {
  return result == kRemoteError ? "remote error" : "an error of the double's NCCL";
}

const char* ncclGetLastError(Comm*) {
  return "said by the double";
}

NcclResult ncclRedOpCreatePreMulSum(NcclOp* op, void* scalar, NcclType type, Residence residence,
                                    Comm* comm) {
  ENTER_COMM(ncclRedOpCreatePreMulSum)
  if (residence != kHostImmediate) violate("ncclRedOpCreatePreMulSum: residence");
  const int handle = kAvg + 1 + static_cast<int>(s.calls["ncclRedOpCreatePreMulSum"]);
  comm->ops[handle] = load_scalar(type, scalar);
  s.ops++;
  *op = static_cast<NcclOp>(handle);
  return kSuccess;
}

NcclResult ncclRedOpDestroy(NcclOp op, Comm* comm) {
  ENTER_COMM(ncclRedOpDestroy)
  if (comm->ops.erase(op) == 0) {
    violate("ncclRedOpDestroy of an operation that is none");
    return kInvalidArgument;
  }
  s.ops--;
  return kSuccess;
}

NcclResult ncclCommRegister(const Comm* comm, void* pointer, size_t bytes, void** handle) {
  ENTER_COMM(ncclCommRegister)
  check_buffer("ncclCommRegister", pointer, bytes);
  char* const made = new char;
  s.registrations[made] = comm;
  *handle = made;
  return kSuccess;
}

NcclResult ncclCommDeregister(const Comm* comm, void* handle) {
  ENTER_COMM(ncclCommDeregister)
  auto* const made = static_cast<char*>(handle);
  if (s.registrations.erase(made) == 0) {
    violate("ncclCommDeregister of a handle that is none");
    return kInvalidArgument;
  }
  delete made;
  return kSuccess;
}

NcclResult ncclAllReduce(const void* send, void* recv, size_t count, NcclType type, NcclOp op,
                         Comm* comm, Stream* stream) {
  return add("ncclAllReduce", {Task::kAllReduce, send, recv, count, type, op}, comm, stream);
}

NcclResult ncclReduce(const void* send, void* recv, size_t count, NcclType type, NcclOp op,
                      int root, Comm* comm, Stream* stream) {
  return add("ncclReduce", {Task::kReduce, send, recv, count, type, op, 1, root}, comm, stream);
}

NcclResult ncclBroadcast(const void* send, void* recv, size_t count, NcclType type, int root,
                         Comm* comm, Stream* stream) {
  return add("ncclBroadcast", {Task::kBroadcast, send, recv, count, type, kSum, 1, root}, comm,
             stream);
}

NcclResult ncclAllGather(const void* send, void* recv, size_t count, NcclType type, Comm* comm,
                         Stream* stream) {
  return add("ncclAllGather", {Task::kAllGather, send, recv, count, type}, comm, stream);
}

NcclResult ncclReduceScatter(const void* send, void* recv, size_t count, NcclType type, NcclOp op,
                             Comm* comm, Stream* stream) {
  return add("ncclReduceScatter", {Task::kReduceScatter, send, recv, count, type, op}, comm,
             stream);
}

NcclResult ncclAlltoAll(const void* send, void* recv, size_t count, NcclType type, Comm* comm,
                        Stream* stream) {
  return add("ncclAlltoAll", {Task::kAllToAll, send, recv, count, type}, comm, stream);
}

NcclResult ncclGather(const void* send, void* recv, size_t count, NcclType type, int root,
                      Comm* comm, Stream* stream) {
  return add("ncclGather", {Task::kGather, send, recv, count, type, kSum, 1, root}, comm, stream);
}

NcclResult ncclScatter(const void* send, void* recv, size_t count, NcclType type, int root,
                       Comm* comm, Stream* stream) {
  return add("ncclScatter", {Task::kScatter, send, recv, count, type, kSum, 1, root}, comm, stream);
}

NcclResult ncclSend(const void* send, size_t count, NcclType type, int peer, Comm* comm,
                    Stream* stream) {
  return add("ncclSend", {Task::kSend, send, nullptr, count, type, kSum, 1, peer}, comm, stream);
}

NcclResult ncclRecv(void* recv, size_t count, NcclType type, int peer, Comm* comm, Stream* stream) {
  return add("ncclRecv", {Task::kRecv, nullptr, recv, count, type, kSum, 1, peer}, comm, stream);
}

NcclResult ncclGroupStart() {
  ENTER(ncclGroupStart)
  group.depth++;
  return kSuccess;
}

NcclResult ncclGroupEnd() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const int code = enter_locked("ncclGroupEnd");
  if (group.depth == 0) {
    violate("ncclGroupEnd without ncclGroupStart");
    return kInvalidUsage;
  }
  if (--group.depth > 0) return result_of(code);
  if (code != 0) group.refused = result_of(code);
  return end_group();
}
}

}  // namespace unisono::nccl
